"""What `mkdocs build` does besides: pages of the repository's root, the commands' own help, the options as they are
declared, and a look for requests."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from kts.cli.app import cli
from kts.options import Bytes, Flag, Option
from kts.spark.options import DECLARED, STREAM_ONLY
from kts.times import show_length

ROOT = Path(__file__).parent.parent
# Files outside of docs/ that are pages or pictures of the site, too.
ALSO = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGES.md": "changes.md",
    "SECURITY.md": "security.md",
    "bench/results.md": "measured.md",
    "bench/batch_size.svg": "batch_size.svg",
    "bench/growth.svg": "growth.svg",
}
HELP = "<!-- the commands' help -->"
HELP_WIDTH = 100
OPTIONS = "<!-- options of {} -->"


def on_files(files: Files, config: Any) -> Files:
    for source, target in ALSO.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Links as they are right in the repository become links of the site."""
    if page.file.src_uri in NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in LATER_IN_SEARCH:
        page.meta["search"] = {"boost": LATER_IN_SEARCH[page.file.src_uri]}
    source = next((name for name, target in ALSO.items() if target == page.file.src_uri), None)
    up = "../" * page.file.src_uri.count("/")
    for name, target in ALSO.items():
        markdown = markdown.replace(f"]({up}../{name}", f"]({up}{target}")
        if source is not None:
            markdown = markdown.replace(f"]({name}", f"]({target}")
            markdown = (
                markdown.replace(f"]({Path(name).name})", f"]({target})") if source.startswith("bench/") else markdown
            )
    if source is not None:
        markdown = markdown.replace("](docs/", "](").replace("](README.md", "](index.md")
    if source == "bench/results.md":
        markdown = f"# The last full run of `make bench`\n\n{markdown}"
    for kind, of_stream in (("a read", False), ("a stream", True)):
        rows = [row(one) for one in DECLARED if one.spark_names and (one.spark_names[0] in STREAM_ONLY) == of_stream]
        markdown = markdown.replace(OPTIONS.format(kind), "\n".join(rows))
    if HELP in markdown:
        group = click.Context(cli, info_name="kts")
        markdown = markdown.replace(HELP, "\n\n".join(described(group, name) for name in cli.list_commands(group)))
    return markdown


def row(one: Option) -> str:
    """An option of Spark's reader, as a row of a table."""
    shown = str(getattr(one.default, "kind", one.default))
    if one.default in (None, ()):
        shown = ""
    elif isinstance(one.kind, Flag):
        shown = shown.lower()
    elif isinstance(one.kind, Bytes):
        shown = f"{one.default >> 20}m"
    elif one.name.endswith("_ms"):
        shown = show_length(one.default)
    names = ", ".join(f"`{name}`" for name in one.spark_names)
    return f"| {names} | {shown and f'`{shown}`'} | {one.doc.replace('``', '`')} |"


class Declared(griffe.Extension):
    """Gives functions that take declared options the signature and the docstring of the running code."""

    def on_function(self, *, func: griffe.Function, **rest: Any) -> None:
        if not any(str(one.value).startswith("takes") for one in func.decorators):
            return
        function = griffe.dynamic_import(func.path)
        if func.docstring is not None:
            func.docstring.value = inspect.getdoc(function) or ""
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    one.name,
                    annotation=one.annotation,
                    kind=griffe.ParameterKind(one.kind.description),
                    default=None if one.default is one.empty else repr(one.default),
                )
                for one in inspect.signature(function).parameters.values()
            )
        )


def described(group: click.Context, name: str) -> str:
    """A command's help, word for word."""
    command = cli.get_command(group, name)
    assert command is not None
    context = click.Context(
        command, info_name=name, parent=group, max_content_width=HELP_WIDTH, terminal_width=HELP_WIDTH
    )
    return f"### kts {name}\n\n{command.get_short_help_str(200)}\n\n```text\n{command.get_help(context)}\n```"


# --- no page makes a request ------------------------------------------------------------------------

LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "video": "src",
    "object": "data",
}
# The theme's own script names these. It asks them only for what no page here has: a repository, a drawing in mermaid.
ASKED_BY_THEME = {"api.github.com", "gitlab.com", "unpkg.com", "www.w3.org", "reactjs.org", "fb.me", "mths.be"}


class Requests(HTMLParser):
    """The addresses that a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        address = named.get(LOADING.get(tag, ""), "") or ""
        if re.match(r"(https?:)?//", address) and named.get("rel") != "canonical":
            self.found.append(address)
        if "mermaid" in (named.get("class") or "") or named.get("data-md-component") == "source":
            self.found.append(f"<{tag}> that the theme's script fills from elsewhere")


# --- the search finds what people look for -----------------------------------------------------------

# Pages that are records of what was measured or checked: their words would hide those that answer a question.
NOT_SEARCHED = ("measured.md", "statements.md", "breaking.md")
LATER_IN_SEARCH = {
    "changes.md": 0.2,
    "claims.md": 0.2,
    "architecture.md": 0.2,
    "contributing.md": 0.2,
    "speed.md": 0.5,
    "reference/python.md": 0.5,
}
# What a user types, and the page that must be the first one found.
SEARCHES = {
    "repair": "tutorials/dead-broker",
    "corrupt": "tutorials/dead-broker",
    "glob": "reference/command-line",
    "retention does not work": "tutorials/time-range",
    "old data is not deleted": "tutorials/time-range",
    "timestamp in the future": "tutorials/bad-times",
    "topic does not expire": "tutorials/bad-times",
    "conda": "index",
    "pip install": "index",
    "s3 credentials": "tutorials/buckets",
    "iceberg": "tutorials/tables",
    "schema registry": "tutorials/tables",
    "structured streaming": "tutorials/streams",
    "pytest": "tutorials/broker-for-tests",
    "docker": "tutorials/broker-for-tests",
    "negative timestamp": "negative-times",
    "duckdb": "recipes",
    "parquet": "recipes",
    "consumer lag": "tutorials/dead-broker",
    "mirror a topic": "tutorials/following",
    "message format v1": "tutorials/message-formats",
    "backup": "tutorials/copies",
    "windows": "limits",
    "tiered storage": "tutorials/tiered",
}


def check_searches(site: Path) -> None:
    """Ask the site's own search, as a browser runs it, if there is a Node.js to run it."""
    node = shutil.which("node")
    if node is None:
        print("the search is not checked: there is no Node.js (sudo apt install nodejs)")
        return
    command = [node, str(Path(__file__).with_name("search.mjs")), str(site)]
    answered = subprocess.run(command, input=json.dumps([*SEARCHES]), capture_output=True, text=True, check=True)
    found = {
        query: [page.partition(".html")[0] for page in pages] for query, pages in json.loads(answered.stdout).items()
    }
    wrong = [
        f"{query!r}: expected {page} first, found {', '.join(dict.fromkeys(found[query][:4])) or 'nothing'}"
        for query, page in SEARCHES.items()
        if found[query][:1] != [page]
    ]
    if wrong:
        raise PluginError("the search does not find the right page:\n" + "\n".join(wrong))


def on_post_build(config: Any) -> None:
    site = Path(config["site_dir"])
    found = []
    for path in sorted(site.rglob("*")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.suffix in (".html", ".css", ".js") else ""
        if path.suffix == ".html":
            parser = Requests()
            parser.feed(text)
            found += [f"{path.relative_to(site)}: {address}" for address in parser.found]
        elif path.suffix == ".css":
            found += [
                f"{path.relative_to(site)}: {address}"
                for address in re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^)\"']*)", text)
            ]
        elif path.suffix == ".js" and path.name != "search_index.js":  # the pages' text, which only the search reads
            hosts = set(re.findall(r"[\"'`]https?://([\w.-]+)", text)) - ASKED_BY_THEME
            found += [f"{path.relative_to(site)}: {host}" for host in sorted(hosts)]
    if found:
        raise PluginError("a page would make a request:\n" + "\n".join(found))
    check_searches(site)
