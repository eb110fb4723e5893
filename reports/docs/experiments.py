"""What write_docs takes from the pages of docs/experiments: their findings and tables."""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "experiments"
FINDING = "* **Finding**: "


class CannotBeMade(Exception):
    pass


def finding(page: Path) -> str:
    found = [line.removeprefix(FINDING) for line in page.read_text().splitlines() if line.startswith(FINDING)] if page.is_file() else []
    if len(found) != 1 or not found[0]:
        raise CannotBeMade(f"{page} has {len(found)} lines '{FINDING}...' and needs one")
    return found[0]


def last_commit(page: str) -> str:
    """What the page's last table was measured at."""
    commit = re.search(r"^\* \*\*Commit\*\*:.*?([0-9a-f]{7,})$", (FOLDER / page).read_text(), re.M)
    if not commit:
        raise CannotBeMade(f"docs/experiments/{page} ends its line '* **Commit**: ...' with no commit")
    return commit[1]


def title(page: Path) -> str:
    return page.read_text().split("\n", 1)[0].lstrip("# ").split(": ", 1)[-1]


def findings(pages: str) -> str:
    """Its links lead from docs/, where the block stands."""
    return "".join(f"* {finding(FOLDER / page)} ([experiment](experiments/{page}))\n" for page in pages.split())


def table_of(page: str) -> list[str]:
    if not (FOLDER / page).is_file():
        raise CannotBeMade(f"docs/experiments has no {page}")
    lines = [line for line in (FOLDER / page).read_text().splitlines() if line.startswith("|")]
    if not lines:
        raise CannotBeMade(f"docs/experiments/{page} has no table")
    return lines


def index(_: str) -> str:
    text = ""
    for room in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        text += f"\n## {room.name}\n\n" + "".join(f"* [{title(page)}]({room.name}/{page.name}): {finding(page)}\n" for page in sorted(room.glob("[!.]*.md")))
    return text.lstrip("\n")


def table(page: str) -> str:
    """Its links lead from docs/, where the block stands."""
    room = Path("experiments") / Path(page).parent
    return re.sub(r"\]\((?!\w+:)([^)]+)\)", lambda link: f"]({os.path.normpath(room / link[1])})", "\n".join(table_of(page)) + "\n")
