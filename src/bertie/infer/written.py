"""`WrittenWords`: the text of tokens that are generated one after another, word by word."""

from dataclasses import dataclass, field

from bertie.text.tokenizer import Tokenizer


@dataclass
class WrittenWords:
    """The text of tokens that come one after another. shown: what has been returned of it."""

    tokenizer: Tokenizer
    tokens: list[int] = field(default_factory=list)
    shown: str = ""

    @property
    def text(self) -> str:
        """The text of all tokens so far."""
        return self.tokenizer.decode(self.tokens)

    def add(self, token: int) -> str:
        """Returns what the token completes: "" within a word, which may continue or end with punctuation."""
        self.tokens.append(token)
        text = self.text
        return self._new(text[: text.rfind(" ") + 1].rstrip())

    def rest(self) -> str:
        """Returns the end of the text, after the last token."""
        return self._new(self.text)

    def _new(self, ready: str) -> str:
        if not ready.startswith(self.shown):
            return ""
        words, self.shown = ready[len(self.shown) :], ready
        return words
