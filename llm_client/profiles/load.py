"""From a file, a text or a base URL to a validated `File`; and changes to one.

    built-in  <  profile file  <  environment  <  constructor  <  call

The further right, the stronger. `explain` tells who set what.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from llm_client.errors import ConfigError
from llm_client.profiles.checks import check
from llm_client.profiles.compose import compose
from llm_client.profiles.frozen import FrozenMap
from llm_client.profiles.layers import Layers, changes, merged
from llm_client.profiles.problems import Problems
from llm_client.profiles.reading import FAILED, Reading, Row
from llm_client.profiles.schema import FILE
from llm_client.profiles.secret import Secret
from llm_client.profiles.tree import CONSTRUCTOR, ENVIRONMENT, Leaf, Origin
from llm_client.profiles.types import File, Profile

_BASE_URL: Final = "OPENAI_BASE_URL"
_API_KEY: Final = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a file was made from, so that it can be changed, explained and pickled.

    Attributes:
        folder: relative `file:` references start here.
        env: the environment it was read in; None for the one of the process.
        literals: key paths of secrets that are written literally.
    """

    layers: Layers
    source: str
    folder: Path
    env: Mapping[str, str] | None = None
    literals: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.literals:
            raise TypeError(
                f"{self.source}: {', '.join(self.literals)} is a secret written literally, and is not pickled. "
                "Write it as ${VARIABLE} or file:/path, or load the profile in the other process"
            )
        return (Recipe, (self.layers, self.source, self.folder))

    def file(self) -> File:
        """Make the file that this describes.

        Raises:
            ConfigError: with every mistake.
        """
        file, reading = _read(self)
        return replace(file, recipe=replace(self, literals=tuple(reading.literals)))


def load(path: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> File:
    """Read a profile file.

    Args:
        path: a YAML file.
        env: the environment that `${VAR}` refers to; None for that of the process.

    Raises:
        ConfigError: with every mistake, its line, its key path and what was expected.
    """
    source = os.fspath(path)
    try:
        text = Path(source).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read the profile file {source}: {error.strerror}", file=source) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{source}, line {line}: not UTF-8 text", file=source, line=line) from None
    return _parse(text, source, Path(source).absolute().parent, env, file=source)


def parse(text: str, *, source: str = "<string>", env: Mapping[str, str] | None = None) -> File:
    """Read the text of a profile file.

    Args:
        text: YAML.
        source: what to call it in messages.
        env: the environment that `${VAR}` refers to; None for that of the process.

    Raises:
        ConfigError: with every mistake, its line, its key path and what was expected.
    """
    return _parse(text, source, Path.cwd(), env)


def _parse(text: str, source: str, folder: Path, env: Mapping[str, str] | None, *, file: str | None = None) -> File:
    problems = Problems()
    document = compose(text, source, problems=problems, file=file)
    problems.check()
    return Recipe(Layers(document), source, folder, env).file()


def built_in(
    base_url: str | None = None,
    api_key: str | Secret | Callable[[], Any] | None = None,
    *,
    endpoint: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> File:
    """Return the built-in profile for one server.

    Args:
        base_url: where the server is; None for OPENAI_BASE_URL, and a file without endpoints if that is not set.
        api_key: its key, or a function that returns a bearer token; None for OPENAI_API_KEY, "" for no key.
        endpoint: further keys of the endpoint, as in a profile file: `headers`, `query`, `dialect`, ...
        env: the environment; None for that of the process.

    Raises:
        ConfigError: something of it cannot work.
    """
    variables = os.environ if env is None else env
    keys: dict[str, Any] = dict(endpoint or {})
    if base_url is not None:
        keys["base_url"] = Leaf(str(base_url), Origin("constructor", "base_url", rank=CONSTRUCTOR))
    elif variables.get(_BASE_URL):
        keys["base_url"] = _variable(_BASE_URL)
    if callable(api_key):
        keys["auth"] = {"callable": api_key}
    elif api_key is not None:
        keys["api_key"] = Leaf(api_key, Origin("constructor", "api_key", rank=CONSTRUCTOR))
    elif not {"api_key", "api_key_file", "auth"} & keys.keys() and variables.get(_API_KEY):
        keys["api_key"] = _variable(_API_KEY)
    if "base_url" not in keys:
        if api_key is not None or endpoint:
            raise ConfigError(f"base_url is missing: say where the server is, or set {_BASE_URL}", path="base_url")
        return Recipe(Layers(None), "<built-in>", Path.cwd(), env).file()
    said = changes({"endpoints": [keys]}, None, 0)
    return Recipe(Layers(None, (said,)), "<built-in>", Path.cwd(), env).file()


def _variable(name: str) -> Leaf:
    return Leaf(f"${{{name}}}", Origin(f"environment {name}", name, rank=ENVIRONMENT), is_text=True)


def merge(file: File, *, pool: Mapping[str, Any] | None = None, profile: Mapping[str, Any] | None = None) -> File:
    """Return a file with changes, as a constructor takes them.

    Args:
        file: from `load`, `parse`, `built_in` or `merge`.
        pool: keys of the `pool:` section that differ.
        profile: profile keys that differ, in every profile.
            Python numbers are seconds, bytes and amounts per second; texts with units are understood too.

    Raises:
        ConfigError: with every mistake, its key path and what was expected.
    """
    recipe = _recipe(file)
    said = changes(pool, profile, len(recipe.layers.changes))
    return replace(recipe, layers=Layers(recipe.layers.document, (*recipe.layers.changes, said))).file()


def explain(file: File) -> list[Row]:
    """Return every effective setting as (path, value, origin); secrets are masked.

    Raises:
        ConfigError: the environment has changed so that the file is no longer valid.
    """
    return _read(_recipe(file), explain=True)[1].rows()


def _recipe(file: File) -> Recipe:
    if isinstance(file.recipe, Recipe):
        return file.recipe
    raise ConfigError("this File was put together by hand; use one made by load(), parse() or built_in()")


def _read(recipe: Recipe, *, explain: bool = False) -> tuple[File, Reading]:
    problems = Problems()
    env = os.environ if recipe.env is None else recipe.env
    reading = Reading(env, recipe.folder, problems, explain=explain)
    values = FILE.read(merged(recipe.layers, env, problems), "", reading)
    problems.check()
    if values is FAILED:
        _unreported()
    pool = values["pool"]
    profiles = FrozenMap({name: Profile(name=name, **said) for name, said in values["profiles"].items()})
    check(pool, profiles, reading)
    problems.check()
    return File(version=values["version"], pool=pool, profiles=profiles, source=recipe.source), reading


def _unreported() -> NoReturn:
    raise AssertionError("a setting failed without a report")
