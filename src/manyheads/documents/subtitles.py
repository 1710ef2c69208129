"""Subtitles (SubRip, .srt): numbers, times and line ends are kept, the text of each cue is translated as one.

A cue of n lines becomes one of n lines again, with the same proportions, if it has spaces to break at. Lines
that begin with a dash, of several speakers, are translated separately. Tags such as <i> are placed as in
HTML.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.html_blocks import make_blocks
from manyheads.documents.html_tokenizer import tokenize
from manyheads.documents.inline import TextBlock
from manyheads.documents.placement import place_translation, render_markup
from manyheads.errors import DataError
from manyheads.translation import Translation

TIMING = re.compile(r"\s*\d+:\d+:\d+[,.]\d+\s*-->\s*\d+:\d+:\d+[,.]\d+")
POSITION = re.compile(r"(?:\{\\[^}]*\})*")  # such as {\an8}, before the text of a cue
DASHES = ("-", "–", "—", "‐")
WORD = re.compile(r"(?:<[^<>]*>|[^\s<]|<)+")
MARKUP = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")


@dataclass
class CueText:
    """Lines of a cue that are translated as one."""

    parts: list[str | TextBlock]
    lengths: list[int]  # of the lines
    line_end: str  # between them
    after: str  # the end of the last line


class SubtitleDocument:
    def __init__(self, text: str, name: str = "subtitles") -> None:
        self.parts: list[str | CueText] = []
        cue: list[str] | None = None  # the lines of the cue that is being read
        for line in text.splitlines(keepends=True):
            if cue is not None and line.strip():
                cue.append(line)
                continue
            self.parts += make_cue(cue or [])
            self.parts.append(line)
            cue = [] if TIMING.match(line) else None
        self.parts += make_cue(cue or [])
        if text.strip() and not any(isinstance(part, str) and TIMING.match(part) for part in self.parts):
            raise DataError(f"{name}: has no line such as 00:00:01,000 --> 00:00:02,500: not subtitles")

    @property
    def texts(self) -> list[str]:
        cues = [cue for cue in self.parts if isinstance(cue, CueText)]
        return [part.text for cue in cues for part in cue.parts if isinstance(part, TextBlock)]

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> str:
        remaining = iter(translations)
        rendered = []
        for cue in self.parts:
            if isinstance(cue, str):
                rendered.append(cue)
                continue
            text = "".join(
                part if isinstance(part, str) else render_cue_block(part, next(remaining), policy)
                for part in cue.parts
            )
            rendered.append(break_lines(text, cue.lengths, cue.line_end) + cue.after)
        return "".join(rendered)


def make_cue(lines: list[str]) -> list[str | CueText]:
    if not lines:
        return []
    if len(lines) > 1 and all(line.lstrip().startswith(DASHES) for line in lines):
        return [part for line in lines for part in make_cue([line])]
    contents = [line.rstrip("\r\n") for line in lines]
    ends = [line[len(content) :] for line, content in zip(lines, contents, strict=True)]
    position = POSITION.match(contents[0])
    lead = position.group() if position else ""
    text = " ".join([contents[0][len(lead) :], *contents[1:]])
    lengths = [count_visible(content) for content in contents]
    return [CueText([lead, *make_blocks(list(tokenize(text)))], lengths, ends[0], ends[-1])]


def render_cue_block(block: TextBlock, translation: Translation, policy: ConfidencePolicy | None) -> str:
    parts = [block.before, *place_translation(block, translation, policy), block.after]
    return render_markup(parts, str)


def break_lines(text: str, lengths: list[int], line_end: str) -> str:
    """Break a text at spaces into lines with the proportions of these lengths."""
    words = WORD.findall(text)
    total = sum(map(count_visible, words))
    if len(lengths) < 2 or len(words) < 2:
        return text
    whole = sum(lengths)
    ends = [total * length / whole for length in itertools.accumulate(lengths)]
    lines: list[list[str]] = [[]]
    done = 0
    for word in words:
        length = count_visible(word)
        if lines[-1] and len(lines) < len(lengths) and done + length / 2 > ends[len(lines) - 1]:
            lines.append([])
        lines[-1].append(word)
        done += length
    return line_end.join(" ".join(line) for line in lines)


def count_visible(text: str) -> int:
    return max(1, sum(not character.isspace() for character in MARKUP.sub("", text)))
