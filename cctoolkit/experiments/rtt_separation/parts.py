"""The parts of the RTT experiment."""

from __future__ import annotations

from ..part import Part
from . import conclusions, figures, scenarios, tables
from .page import beside_paper
from .scenarios import SCALING, Settings

__all__ = ["PARTS", "TABLE_1"]

PARTS: dict[int, Part[Settings]] = {
    1: Part(
        scenarios=scenarios.test_1,
        tables=tables.test_1,
        figures=figures.test_1,
        statements=conclusions.test_1,
        page=beside_paper("test1", 1),
    ),
    2: Part(
        scenarios=scenarios.test_2,
        tables=tables.test_2,
        figures=figures.test_2,
        statements=conclusions.test_2,
        page=beside_paper("test2", 2),
    ),
    3: Part(
        scenarios=scenarios.test_3,
        tables=tables.test_3,
        figures=figures.test_3,
        statements=conclusions.test_3,
        page=beside_paper("test3", 3),
    ),
    4: Part(
        scenarios=scenarios.test_4,
        tables=tables.test_4,
        figures=figures.test_4,
        statements=conclusions.test_4,
        page=beside_paper("test4", 4),
    ),
    5: Part(
        scenarios=scenarios.test_5,
        tables=tables.test_5,
        figures=figures.test_5,
        statements=conclusions.test_5,
        page=beside_paper("test5", 5),
    ),
    6: Part(
        scenarios=scenarios.test_6,
        tables=tables.test_6,
        figures=figures.test_6,
        statements=conclusions.test_6,
        page=beside_paper("test6", 6),
    ),
    SCALING: Part(
        tables=lambda settings, _: {"scaling": tables.scaling(settings)},
        figures=figures.scaling,
        statements=conclusions.scaling,
        page=beside_paper("scaling", SCALING),
    ),
    8: Part(
        scenarios=scenarios.test_8,
        tables=tables.test_8,
        figures=figures.test_8,
        statements=conclusions.test_8,
        page=beside_paper("test8", 8),
    ),
    9: Part(
        scenarios=scenarios.test_9,
        tables=tables.test_9,
        figures=figures.test_9,
        statements=conclusions.test_9,
        page=beside_paper("test9", 9),
    ),
    10: Part(
        scenarios=scenarios.test_10,
        tables=tables.test_10,
        figures=figures.test_10,
        statements=conclusions.test_10,
        page=beside_paper("test10", 10),
    ),
    11: Part(
        scenarios=scenarios.test_11,
        tables=tables.test_11,
        figures=figures.test_11,
        statements=conclusions.test_11,
        page=beside_paper("test11", 11),
    ),
}

#: The paper's Table 1, from the tables of tests 1 and 4.
TABLE_1: Part[Settings] = Part(
    tables=lambda settings, found: {"table1": tables.table_1(found.get("test1"), found.get("test4"))},
    statements=conclusions.table_1,
    page=beside_paper("table1", 0),
)
