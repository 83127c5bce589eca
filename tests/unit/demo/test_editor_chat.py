"""How an editor chat shows its files."""

from proxy.demo.editor_chat import shown


def test_a_fence_is_one_that_begins_no_line_of_any_file() -> None:
    assert shown({"a.md": "text"}).endswith("\na.md\n```\ntext\n```\n")
    assert shown({"a.md": "```\ncode\n```\n"}).endswith("\na.md\n````\n```\ncode\n```\n````\n")
    longer = "```\n````\n"
    assert shown({"a.md": longer}).endswith(f"\na.md\n<source>\n{longer}</source>\n")
    every = "````\n<source>\n<code>\n<pre>\n<codeblock>\n<sourcecode>\n"
    assert shown({"a.md": every}).endswith(f"\na.md\n```\n{every}```\n")
