"""The table of audit sets. A new set is one file and one row."""

from typing import Any

from bertie.apps.audit.base import AuditSet
from bertie.apps.audit.flips import Flips
from bertie.apps.audit.groups import GroupAudit
from bertie.apps.audit.pairs import CrowsPairs
from bertie.apps.audit.questions import BBQ, KoBBQ
from bertie.apps.audit.stereoset import BetweenSentences, InsideSentence
from bertie.apps.audit.templates import Templates
from bertie.apps.audit.words import WordAssociations
from bertie.platform import Registry

_ALL: tuple[AuditSet[Any], ...] = (
    CrowsPairs(),
    InsideSentence(),
    BetweenSentences(),
    Templates(),
    WordAssociations(),
    BBQ(),
    KoBBQ(),
    GroupAudit(),
    Flips(),
)
SETS: Registry[AuditSet[Any]] = Registry("audit set", [(one.name, one) for one in _ALL])
