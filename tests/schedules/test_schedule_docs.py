"""What the page about schedules shows is run, word for word, and its file of jobs is valid."""

import re
from pathlib import Path

from solely.cli.cron import read_jobs
from tests.test_docs import blocks

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"


def test_examples_of_the_page() -> None:
    for example in blocks("docs/schedules.md"):
        exec(example, {})


def test_the_file_of_the_page_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    (job,) = read_jobs(str(file))
    assert (job.name, job.command, job.timeout, job.options["misfire"]) == (
        "report",
        ("report", "--daily"),
        3600.0,
        "once",
    )
