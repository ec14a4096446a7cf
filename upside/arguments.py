"""The words after a command: read by tyro, refused in one line."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import tyro

from upside.types import UserError

Number = TypeVar("Number", int, float)


FRAME = r"[─│╭╮╰╯]|[-+|]{5,}|(?<!\S)[|+](?!\S)|\x1b\[[0-9;]*m"
"""What a terminal draws around an error, in Unicode or in ASCII."""


def parse(kind: Callable[..., Any], command: str, arguments: list[str], **options: Any) -> Any:
    """`tyro.cli`, with its boxed report of a mistake folded into one line."""
    report = io.StringIO()
    arguments = [_plain_number(word) for word in arguments]
    try:
        with contextlib.redirect_stderr(report):
            return tyro.cli(kind, prog=f"upside {command}", args=arguments, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        words = " ".join(re.sub(FRAME, " ", report.getvalue()).split())
        words = re.sub(
            r"^(Parsing error|Value error|Required options|Unrecognized options) ", "", words
        )
        line = re.split(r" For full helptext| Argument helptext", words)[0]
        raise UserError(
            f"{_plain_words(line, arguments)} (see 'upside {command} --help')"
        ) from None


def _plain_words(line: str, arguments: list[str]) -> str:
    """What the parser says, without Python's own words and without the values of options that there are not."""
    if line.startswith("Unrecognized"):
        options = list(dict.fromkeys(re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", line)))
        typed = {word.partition("=")[0].replace("_", "-") for word in arguments}
        wrong = [option for option in options if option in typed]
        meant = [option for option in options if option not in typed]
        ask = f": did you mean {' or '.join(meant)}?" if meant else ""
        return f"there is no option {', '.join(wrong)} here{ask}" if wrong else line
    line = re.sub(
        r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number", line
    )
    line = re.sub(r"could not convert string to float: (.*)", r"\1 is not a number", line)
    line = re.sub(r"Could not find valid parse for arguments: \[(.*)\]", r"\1 cannot be read", line)
    # of "None or a number" only the number is worth a word
    line = re.sub(r"no type matching .* Got errors: .*- <class '\w+'>: ", "", line)
    return line.removeprefix("Error parsing ")


def _plain_number(word: str) -> str:
    """1e6 is 1000000: budgets are written like that."""
    return str(int(float(word))) if re.fullmatch(r"\d+e\d{1,2}", word) else word


def take(arguments: list[str], name: str) -> tuple[str | None, list[str]]:
    """The value of an option that decides which other options there are, and the rest."""
    for i, word in enumerate(arguments):
        if word == name:
            if i + 1 == len(arguments):
                raise UserError(f"{name} needs a value")
            return arguments[i + 1], arguments[:i] + arguments[i + 2 :]
        if word.startswith(f"{name}="):
            return word.partition("=")[2], arguments[:i] + arguments[i + 1 :]
    return None, arguments


def valued(arguments: list[str], *names: str) -> None:
    """Refuse an option that lists what is wanted, but lists nothing: it would mean all."""
    for word, following in itertools.pairwise([*arguments, "--"]):
        if word in names and following.startswith("--"):
            raise UserError(f"{word} needs a value")


def numbers(name: str, text: str | None, kind: type[Number]) -> tuple[Number, ...] | None:
    """Numbers with commas between them."""
    try:
        return None if text is None else tuple(kind(word) for word in text.split(","))
    except ValueError:
        raise UserError(f"{name} {text} is not numbers with commas between them") from None
