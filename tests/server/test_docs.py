"""The page about the server names everything the server has."""

import dataclasses
from pathlib import Path

import pytest
from llm_client.server.app import create_app
from llm_client.server.batching import PRESETS
from llm_client.server.dialects import DIALECTS
from llm_client.server.faults import Rule, script
from llm_client.server.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "server.md").read_text("utf-8")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings)])
def test_every_option_has_its_line(name):
    """Name and meaning, in the words of the help."""
    field = {each.name: each for each in dataclasses.fields(Settings)}[name]

    assert f"| `--{name.replace('_', '-')}` |" in PAGE
    assert field.metadata["help"] in PAGE


async def test_every_fault_dialect_preset_and_metric_is_named():
    """What is not named is not found."""
    names = {("for" if field == "lasts" else field) for field in Rule.model_fields}
    server = create_app().state.server
    kinds = {metric.name: metric.type for metric in server.metrics.registry.collect()}
    metrics = {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}

    assert {name for name in names if f"`{name}`" not in PAGE} == set()
    assert {name for name in (*DIALECTS, *PRESETS) if f"`{name}`" not in PAGE} == set()
    assert {name for name in metrics if f"`{name}" not in PAGE} == set()


def test_script_of_faults_on_the_page_is_one(tmp_path):
    """Copied from the page, it loads."""
    yaml = PAGE.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "outage.yaml").write_text(yaml)

    assert [rule.at for rule in script(tmp_path / "outage.yaml")] == [10, 60, 90]
