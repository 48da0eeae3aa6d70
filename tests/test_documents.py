"""TOML and JSON that nobody would write: one line, wherever they are read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st
from tools import examples

import cctoolkit as cct
from cctoolkit._support import documents
from cctoolkit.errors import CCToolkitError, ParameterError, SchemaError
from cctoolkit.identify.readers.labels import read_labels

DEEP = 100_000
HOSTILE = {
    "empty": b"",
    "not text": b"\xff\xfe\x00",
    "list": b"[]",
    "number": b"3",
    "null": b"null",
    "deep lists": b"[" * DEEP,
    "deep list in a field": b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"a":' * DEEP,
    "forty levels": b'{"format":' * 40 + b"1" + b"}" * 40,
    "a long number": b'{"format": ' + b"9" * 10_000 + b"}",
    "infinite": b'{"format": Infinity}',
}
TOML = {
    "deep lists": b"name = " + b"[" * DEEP,
    "forty levels": b"name = " + b"[" * 40 + b"]" * 40,
    "deep tables": b"name = " + b"{ a = " * DEEP,
    "deep keys": b"name" + b".a" * DEEP + b" = 1",
    "deep keys with quotes": b"name" + b" . 'a' . \"\\u0061\"" * DEEP + b" = 1",
    "deep keys in a table": b"name = {a" + b".a" * DEEP + b" = 1}",
    "deep headings": b"[a" + b".a" * DEEP + b"]",
    "quotes without end": b"a" + b'\\"' * DEEP,
    "a long number": b"seed = " + b"9" * 10_000,
    "a long number in hexadecimal": b"seed = 0x" + b"f" * 10_000,
    "a long name": b'name = "'
    + b"x" * 131_073
    + b'"\nduration_s = 1\n[bottleneck]\nrate_mbps = 1\nbuffer_packets = 5\n'
    b"[[flows]]\n",
    "a long word": b'duration_s = "'
    + b"x" * 131_073
    + b'"\n[bottleneck]\nrate_mbps = 1\nbuffer_packets = 5\n[[flows]]\n',
    "a long choice": b'[bottleneck]\nrate_mbps = 1\nbuffer_packets = 5\nlink = "'
    + b"x" * 131_073
    + b'"\n[[flows]]\n',
    "not text": b"name = '\xff'",
    "a date that is none": b"name = 2020-02-31",
}


def refused(error, function, *arguments, longest=500):
    with pytest.raises(error) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < longest
    return str(caught.value)


@pytest.mark.parametrize("name", HOSTILE)
def test_json_of_a_run_a_model_and_a_dataset(name, tmp_path):
    for file, read in (
        ("run.json", cct.load_run),
        ("provenance.json", cct.load_run),
        ("model.json", cct.identify.load),
        ("dataset.json", cct.identify.SlotDataset),
    ):
        folder = tmp_path / file.removesuffix(".json")
        folder.mkdir()
        (folder / file).write_bytes(HOSTILE[name])
        assert str(folder) in refused(SchemaError, read, folder)


@pytest.mark.parametrize("name", HOSTILE | TOML)
def test_toml_of_a_scenario(name, tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_bytes((HOSTILE | TOML)[name])
    for read in (cct.read_scenario, cct.scenario.read_sweep):
        assert str(path) in refused(ParameterError, read, path)


def test_what_is_no_file_is_one_line(tmp_path):
    for read in (documents.read_toml, documents.read_json):
        assert str(tmp_path) in refused(CCToolkitError, read, tmp_path)
        assert "No such file" in refused(CCToolkitError, read, tmp_path / "none")


def test_a_file_without_end_is_refused(tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(documents.MOST_BYTES + 1)  # takes no disk
    assert "more than" in refused(CCToolkitError, documents.read_toml, large)
    assert "expected at most" in refused(CCToolkitError, documents.read_json, large)
    assert "more than" in refused(
        CCToolkitError, documents.read_toml, "/dev/zero"
    )  # scenarios may come from a pipe
    assert "not a regular file" in refused(CCToolkitError, documents.read_json, "/dev/zero")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=30,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_what_is_well_formed_comes_back(value):
    assert repr(documents.parsed(json.loads, json.dumps(value).encode())) == repr(value)


@pytest.mark.slow
@pytest.mark.parametrize("quotes", ['"', "'", '"""', "'''", "#"])
def test_dots_that_are_no_key(quotes, tmp_path):
    path = tmp_path / "scenario.toml"
    end = "" if quotes == "#" else quotes
    path.write_text(f"a = 1.5 {quotes}{end}\n" if quotes == "#" else f"a = {quotes}{'x.' * DEEP}{end}\n")
    assert "a" in documents.read_toml(path)
    path.write_text(f"a = [{'0.5, ' * DEEP}]\nb = 2 # {quotes[:1]}{'x.' * DEEP}\n")
    assert documents.read_toml(path)["b"] == 2


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60) | st.text("[]{}\"'=.,:#\\nau01", max_size=60).map(str.encode))
def test_any_bytes_are_a_table_or_one_line(content):
    for parser in (json.loads, documents.tomllib.loads):
        try:
            found = documents.parsed(parser, content)
        except ValueError as err:
            assert "\n" not in str(err)
        else:
            assert isinstance(found, dict)


@pytest.mark.parametrize("cell", ["x" * 5000, "x" * 131_073, '"' + "x,\n" * 60_000])
def test_a_label_is_short(cell, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(f"src,cca\n10.0.0.1,{cell}\n")
    assert f"{path}: line " in refused(SchemaError, read_labels, path)


@pytest.mark.parametrize("where", ["name", "flows.0.name"])
def test_a_name_is_short(where):
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=1, buffer_packets=5), flows=[cct.Flow()], duration_s=1
    )
    assert "131,072 characters" in refused(ParameterError, scenario.replace, {where: "x" * 131_072})
    assert scenario.replace({where: "x" * 255})
