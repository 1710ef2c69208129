"""Tokens are shown as people read them, in node, without a browser."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

SCRIPT = """
import { readableTokens } from "ASSETS/token_text.js";
const names = { beginToken: "[start]", endToken: "[end]", unknownToken: "[?]" };
const texts = { ...names, byteToken: (byte) => `[byte ${byte}]` };
console.log(JSON.stringify(JSON.parse(process.argv[1]).map((tokens) => readableTokens(tokens, texts))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_tokens_have_no_marks_of_spaces_and_bytes() -> None:
    script = SCRIPT.replace("ASSETS", str(files("manyheads.look").joinpath("assets")))
    cases = {
        ("<s>", "▁ho", "me", ".", "</s>"): ["[start]", "ho", "·me", ".", "[end]"],
        ("▁", "<0xEA>", "<0xB0>", "<0x80>", "나"): ["␣", "가 1/3", "가 2/3", "가 3/3", "·나"],
        ("<0x41>", "<0xEC>", "▁"): ["A", "[byte EC]", "␣"],
        ("<0xEC>", "<0xEA>", "<0xB0>", "<0x80>"): ["[byte EC]", "가 1/3", "가 2/3", "가 3/3"],
    }
    command = ["node", "--input-type=module", "-e", script, json.dumps(list(map(list, cases)))]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == list(cases.values())
