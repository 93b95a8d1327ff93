"""Teams in plain Python, where each is one thread."""

from __future__ import annotations

import numpy as np

from aiodev import lang


def test_a_body_for_teams_runs_as_it_stands() -> None:
    """Its only thread has all of the work, and finds in the team's memory what it wrote there."""
    host, out = np.arange(5.0), np.zeros(1)

    def total(i, x, out):
        partial = lang.team_array(1, "f8")
        partial[lang.team_rank()] = sum(x[k] for k in range(lang.team_rank(), x.size, lang.team_size()))
        lang.team_barrier()
        out[i] = partial[:lang.team_size()].sum()

    total(0, host, out)
    assert out[0] == host.sum()


def test_memory_of_a_team_has_the_dtype_that_is_asked_for() -> None:
    assert lang.team_array(4, "i2").dtype == np.int16
