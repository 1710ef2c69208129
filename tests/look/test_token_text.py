"""Tokens are shown as people read them, in node, without a browser."""

from support.node_engine import NodeEngine


def test_tokens_have_no_marks_of_spaces_and_bytes(node: NodeEngine) -> None:
    cases = {
        ("<s>", "▁ho", "me", ".", "</s>"): ["[start]", "ho", "·me", ".", "[end]"],
        ("▁", "<0xEA>", "<0xB0>", "<0x80>", "나"): ["␣", "가 1/3", "가 2/3", "가 3/3", "·나"],
        ("<0x41>", "<0xEC>", "▁"): ["A", "[byte EC]", "␣"],
        ("<0xEC>", "<0xEA>", "<0xB0>", "<0x80>"): ["[byte EC]", "가 1/3", "가 2/3", "가 3/3"],
    }
    assert node.call("readTokens", sentences=list(map(list, cases))) == list(cases.values())
