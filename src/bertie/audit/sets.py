"""The table of audit sets. A new set is one file and one row."""

from typing import Any

from bertie.audit.base import AuditSet
from bertie.audit.flips import Flips
from bertie.audit.groups import Groups
from bertie.audit.pairs import CrowsPairs
from bertie.audit.questions import BBQ, KoBBQ
from bertie.audit.stereoset import BetweenSentences, InsideSentence
from bertie.audit.templates import Templates
from bertie.audit.words import Words
from bertie.registry import Registry

_ALL: tuple[AuditSet[Any], ...] = (
    CrowsPairs(),
    InsideSentence(),
    BetweenSentences(),
    Templates(),
    Words(),
    BBQ(),
    KoBBQ(),
    Groups(),
    Flips(),
)
SETS: Registry[AuditSet[Any]] = Registry("audit set", [(one.name, one) for one in _ALL])
