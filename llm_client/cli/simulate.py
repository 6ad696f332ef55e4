"""`llm-client simulate PROFILE SCENARIO`: a load against a modelled server with your profile, in virtual time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import yaml

from llm_client.cli.plot import page
from llm_client.errors import ConfigError
from llm_client.model import Priority
from llm_client.profiles import load as profiles
from llm_client.profiles.types import File
from llm_client.testing.simulation import SERVERS, Kind, Report, Scenario, simulate

BUILT_IN = "built-in"
_MIX = (
    Kind(priority="critical", share=1, stream=True),
    Kind(priority="normal", share=2, stream=True),
    Kind(priority="low", share=3, stream=True),
)
_PATIENT = (Kind(deadline=None, sigma=0.0),)
_STREAM = (Kind(stream=True),)
_EIGHT = {"slots": 8, "queue": 8, "seconds": 0.2}
_MANY = {"slots": 64, "queue": 64, "seconds": 0.2}

SCENARIOS: Mapping[str, Scenario] = {
    "steady": Scenario(server="batch", load=0.8, seconds=300.0, kinds=_STREAM, clients=4),
    "overload": Scenario(server="batch", load=1.5, seconds=300.0, kinds=_STREAM, clients=4),
    "overload-3": Scenario(server="batch", load=3.0, seconds=300.0, kinds=_STREAM, clients=4),
    "halved": Scenario(
        server="batch",
        load=1.5,
        seconds=450.0,
        kinds=_STREAM,
        clients=4,
        changes=((150.0, "slots", 16), (300.0, "slots", 32)),
    ),
    "priorities": Scenario(
        server="batch",
        load=2.0,
        seconds=300.0,
        kinds=(*_MIX, Kind(priority="low", share=33, begin=200.0, stream=True)),
        clients=4,
    ),
    "burst-a": Scenario(settings=_EIGHT, burst=400, kinds=_PATIENT),
    "burst-b": Scenario(settings={"slots": 2, "queue": 2, "seconds": 0.2}, burst=150, kinds=_PATIENT),
    "burst-c": Scenario(settings=_MANY, burst=3000, kinds=_PATIENT),
    "burst-d": Scenario(settings={**_EIGHT, "retry_after": None}, burst=400, kinds=_PATIENT),
    "burst-e": Scenario(settings={**_MANY, "queue": inf}, burst=3000, kinds=_PATIENT),
    "hosted": Scenario(
        server="bucket", settings={"rate": 10.0, "burst": 20.0, "seconds": 1.0}, burst=1000, kinds=_PATIENT
    ),
    "outage": Scenario(
        server="batch",
        load=0.8,
        seconds=240.0,
        kinds=_STREAM,
        clients=4,
        changes=((100.0, "down", 503), (104.0, "down", 0)),
    ),
}
# Fields of the servers that are no settings.
_WORLDLY = {"world", "rng", "books"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to play."""
    parser.add_argument("profile", metavar="PROFILE", help=f"a profile file, or {BUILT_IN}")
    parser.add_argument("scenario", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)}, or a YAML file")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals, lengths and jitter (1)")
    parser.add_argument("--clients", type=int, help="processes that share the load (the scenario's own)")
    parser.add_argument("--report", metavar="FILE", help="write a page with curves: .html or .svg")


def run(options: argparse.Namespace) -> int:
    """Play the scenario and print what came of it."""
    file = _file(options.profile)
    scenario = SCENARIOS.get(options.scenario) or _read(options.scenario)
    if options.clients is not None:
        scenario = replace(scenario, clients=options.clients)
    if options.report and Path(options.report).suffix not in {".html", ".svg"}:
        raise ConfigError(f"--report: expected a name that ends in .html or .svg, got {options.report!r}")
    _check_profiles(file, scenario)
    report = simulate(scenario, file=file, seed=options.seed)
    for line in report.table():
        print(line)
    if options.report:
        _write(options, report)
    return 0


def _write(options: argparse.Namespace, report: Report) -> None:
    title = f"{options.scenario} with {options.profile}, seed {options.seed}"
    try:
        Path(options.report).write_text(page(report, title, html=options.report.endswith(".html")), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--report: {options.report}: {error.strerror}") from error
    print(f"curves in {options.report}")


def _file(name: str) -> File | None:
    if name == BUILT_IN:
        return None
    try:
        return profiles.load(name)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from error


def _check_profiles(file: File | None, scenario: Scenario) -> None:
    known = {"default"} if file is None else set(file.profiles)
    for kind in scenario.kinds:
        if kind.profile not in known:
            raise ConfigError(f"kinds: no profile is called {kind.profile!r}; there are {', '.join(sorted(known))}")


def _read(name: str) -> Scenario:
    """Read a scenario from a file: the fields of `Scenario`, `kinds` a list of maps."""
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        raise ConfigError(f"no scenario is called {name!r}; there are {', '.join(SCENARIOS)}, or give a .yaml file")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    try:
        return _scenario(data)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def _scenario(data: Any) -> Scenario:
    given = _known(data, Scenario, "the scenario")
    kinds = given.pop("kinds", None)
    if kinds is not None:
        if not isinstance(kinds, list) or not kinds:
            raise ConfigError("kinds: expected a list of maps")
        given["kinds"] = tuple(_kind(each, f"kinds[{number}]") for number, each in enumerate(kinds))
    server = SERVERS.get(given.get("server", "slots"))
    settings = given.get("settings", {})
    if server is not None:
        names = {each.name for each in fields(server)} - _WORLDLY
        if not isinstance(settings, dict) or not set(settings) <= names:
            raise ConfigError(f"settings: expected a map of {', '.join(sorted(names))}, got {settings!r}")
        for name, value in settings.items():
            _setting(f"settings.{name}", value)
        given["changes"] = tuple(_change(each, n, names) for n, each in enumerate(given.get("changes") or ()))
    for name in ("rate", "load", "seconds"):
        if name in given:
            _number(name, given[name])
    for name in ("burst", "clients"):
        if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int)):
            raise ConfigError(f"{name}: expected a whole number, got {given[name]!r}")
    return Scenario(**given)


def _kind(data: Any, where: str) -> Kind:
    given = _known(data, Kind, where)
    for name, value in given.items():
        if name in {"priority", "profile"} and not isinstance(value, str):
            raise ConfigError(f"{where}.{name}: expected a word, got {value!r}")
        if name == "stream" and not isinstance(value, bool):
            raise ConfigError(f"{where}.stream: expected true or false, got {value!r}")
        if name in {"share", "prompt", "output", "sigma", "begin", "end"}:
            _number(f"{where}.{name}", value)
        if name in {"deadline", "max_tokens"} and value is not None:
            _number(f"{where}.{name}", value)
    try:
        Priority.parse(given.get("priority", "normal"))
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{where}.priority: {error}") from error
    return Kind(**given)


def _change(data: Any, number: int, names: set[str]) -> tuple[float, str, Any]:
    where = f"changes[{number}]"
    if not isinstance(data, list) or len(data) != len(("second", "name", "value")):
        raise ConfigError(f"{where}: expected [second, setting, value], got {data!r}")
    at, name, value = data
    _number(where, at)
    if name not in names:
        raise ConfigError(f"{where}: the server has no setting {name!r}; it has {', '.join(sorted(names))}")
    _setting(f"{where}: {name}", value)
    return float(at), name, value


def _known(data: Any, shape: type, where: str) -> dict[str, Any]:
    names = [each.name for each in fields(shape)]
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected a map of {', '.join(names)}, got {data!r}")
    unknown = [str(name) for name in data if name not in names]
    if unknown:
        raise ConfigError(f"{where}: unknown {', '.join(unknown)}; expected {', '.join(names)}")
    return dict(data)


def _setting(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        _number(name, value, bound=name.endswith("queue"))


def _number(name: str, value: Any, *, bound: bool = False) -> None:
    """Refuse what is no finite number of at least 0; a `bound` may also be infinite."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or value < 0 or not (isfinite(value) or (bound and value == inf)):
        raise ConfigError(f"{name}: expected a number of at least 0, got {value!r}")
