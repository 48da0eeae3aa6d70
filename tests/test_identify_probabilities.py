"""In how many pieces a window is judged, and what they say together."""

from __future__ import annotations

import numpy as np
import pytest

from cctoolkit.identify.probabilities import (
    by_length,
    by_pieces,
    grouped,
    named,
    pieces,
    possible_answers,
    softmax,
    together,
)


def window(slots: int, rtt_slots: float | None) -> np.ndarray:
    """One segment a slot, so that the flight is the round trip's."""
    X = np.zeros((slots, 5), np.float32)
    X[:, 0] = 1448
    X[:, 4] = np.nan if rtt_slots is None else 1448 * rtt_slots
    return X


@pytest.mark.parametrize(
    ("slots", "rtt_slots", "count"),
    [
        (1000, 1, 1),  # no window of a second is divided
        (10_000, 80, 5),  # 25 round trips are two seconds
        (10_000, 5, 10),  # a second at least
        (10_000, 1000, 1),  # ten seconds at most
        (60_000, 200, 12),
        (60_000, 1000, 6),
        (10_000, None, 3),  # not observed: three seconds
        (7000, 160, 2),
    ],
)
def test_a_piece_has_25_round_trips(slots: int, rtt_slots: float | None, count: int) -> None:
    assert pieces(window(slots, rtt_slots)[None]).tolist() == [count]


def test_a_window_without_arrivals_is_divided_as_one_without_flight() -> None:
    assert pieces(np.zeros((1, 10_000, 5), np.float32)).tolist() == [3]


def test_pieces_are_combined_by_the_mean_of_their_logarithms() -> None:
    X = np.stack([window(4000, 10), window(4000, 160), window(4000, 10)])
    X[0, :2000, 1], X[2, :, 1] = 3, 1  # what probabilities are made of here
    seen: list[tuple[int, ...]] = []

    def probabilities(part: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        seen.append(part.shape)
        scores = np.stack([part[:, :, 1].mean(axis=1), np.zeros(len(part))], axis=1)
        return softmax(scores / temperature[:, None])

    found = by_pieces(X, probabilities, np.array([1.0, 1.0, 2.0]))
    assert sorted(seen) == [(1, 4000, 5)] + [(2, 1000, 5)] * 4
    expected = [np.log(softmax(np.array([[value, 0.0]])))[0] for value in (3, 3, 0, 0)]
    np.testing.assert_allclose(found[0], softmax(np.mean(expected, axis=0, keepdims=True))[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found[2], softmax(np.array([[0.5, 0.0]]))[0], rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_nothing_is_unknown_where_all_have_a_name_and_no_limit_was_learnt() -> None:
    classes, probabilities = np.array(["bbr", "reno"]), np.array([[0.5, 0.5], [0.4, 0.6]])
    assert named(probabilities, classes, "other", 0.0).tolist() == ["bbr", "reno"]
    assert named(probabilities, classes, "other", 0.55).tolist() == ["unknown", "reno"]


def test_a_name_has_to_be_as_probable_as_windows_of_its_length_ask_for() -> None:
    limits = np.array([[100, 0.2], [1000, 0.4], [10_000, 0.8]])
    limit = by_length(limits, np.array([10, 100, 316.227766, 1000, 10_000, 60_000]), 0.0)
    np.testing.assert_allclose(limit, [0.2, 0.2, 0.3, 0.4, 0.8, 0.8], rtol=1e-9)
    assert by_length(limits, 1000, 0.0) == pytest.approx(0.4)
    np.testing.assert_array_equal(by_length(np.empty((0, 2)), np.array([5, 7]), 1.0), [1, 1])
    classes, alike = np.array(["bbr", "reno"]), np.array([[0.5, 0.5], [0.5, 0.5]])
    assert named(alike, classes, "other", np.array([0.4, 0.6])).tolist() == ["bbr", "unknown"]


def test_what_is_alike_is_one_answer_whose_probability_is_the_sum() -> None:
    classes = np.array(["bbr", "lp", "reno", "yeah"])
    probabilities = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    alike = {"one segment a round trip": ["reno", "lp"], "yeah": ["nobody"]}
    assert possible_answers(classes, alike).tolist() == ["bbr", "one segment a round trip", "yeah"]
    np.testing.assert_allclose(together(probabilities, classes, alike), [[0.1, 0.5, 0.4], [0.7, 0.2, 0.1]])
    for nothing in (None, {}):
        assert possible_answers(classes, nothing) is classes
        assert together(probabilities, classes, nothing) is probabilities
    labels = np.array(["lp", "cubic", "yeah"], object)
    assert grouped(labels, alike).tolist() == ["one segment a round trip", "cubic", "yeah"]
