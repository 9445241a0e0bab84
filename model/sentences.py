"""Parts of the sentences that a user reads."""


def counted(count: int, noun: str, what: str = "") -> str:
    """Return the count with its noun, in the plural unless it is 1; `what` follows the noun."""
    return f"{count} {noun}{'s' * (count != 1)} {what}".rstrip()


def as_long_as(times: str) -> str:
    """Say how long something takes, in written `times` of what follows."""
    return "as long as" if float(times) == 1 else f"{times} times as long as"
