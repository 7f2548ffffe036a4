"""What the page about queues shows is run, word for word."""

import pytest

from tests.test_docs import blocks


def test_examples_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    for example in blocks("docs/queues.md"):
        exec(example, {})
    assert capsys.readouterr().out == "sending disk full\nsending hello\n"
