"""Parts of the sentences that a user reads."""


def counted(count: int, noun: str, what: str = "") -> str:
    """Return the count with its noun, in the plural unless it is 1; `what` follows the noun."""
    return f"{count} {noun}{'s' * (count != 1)} {what}".rstrip()
