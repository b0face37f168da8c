"""Notes of a veterinary clinic, urgent or routine: a text whose words a general model has rarely read."""

import random

_LABELS = ("urgent", "routine")
ANIMALS = ("spaniel", "terrier", "tomcat", "kitten", "mare", "ewe", "ferret", "cockatiel", "greyhound", "rabbit")
AGES = ("neutered", "elderly", "juvenile", "overweight", "stray", "timid")
SIGNS = {
    "urgent": (
        *("collapse", "dyspnea", "hematemesis", "repeated seizures", "acute bloat", "uncontrolled hemorrhage"),
        *("cyanosis", "urethral obstruction"),
    ),
    "routine": (
        *("mild pruritus", "dental tartar", "overgrown claws", "mild otitis", "seasonal alopecia", "a small lipoma"),
        *("reduced appetite", "occasional sneezing"),
    ),
}
FINDINGS = {
    "urgent": ("tachycardia", "pale mucous membranes", "marked dehydration", "hypothermia", "abdominal distension"),
    "routine": ("normal heart sounds", "pink mucous membranes", "normal hydration", "a soft abdomen", "a glossy coat"),
}
TREATMENTS = {
    "urgent": ("intravenous fluids", "oxygen", "emergency laparotomy", "a transfusion", "diazepam"),
    "routine": ("meloxicam", "an antiparasitic", "ear drops", "a booster vaccination", "dental scaling"),
}
_PATTERNS = (
    "{age} {animal} presented with {sign}. Examination showed {finding} and {other}. Treatment: {treatment}.",
    "{animal}, {age}, {sign} since the morning. On auscultation and palpation {finding}. Given {treatment}.",
    "The owner of this {age} {animal} reported {sign}. Findings: {finding}, {other}. Prescribed {treatment}.",
    "Recheck of the {age} {animal}: {sign}, {finding}. Plan: {treatment}, then radiography.",
)


def make_note(index: int, rng: random.Random) -> dict[str, str]:
    """A note and its label; the labels take turns."""
    label = _LABELS[index % 2]
    finding, other = rng.sample(FINDINGS[label], 2)
    text = rng.choice(_PATTERNS).format(
        age=rng.choice(AGES),
        animal=rng.choice(ANIMALS),
        sign=rng.choice(SIGNS[label]),
        finding=finding,
        other=other,
        treatment=rng.choice(TREATMENTS[label]),
    )
    return {"text": text[0].upper() + text[1:], "label": label}
