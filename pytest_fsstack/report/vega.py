"""Drawing by Vega's own programs, which vl-convert brings (the extra `pictures`): without a browser or the network."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable

from pytest_fsstack.judging.results import Results
from pytest_fsstack.report.charts import Chart, Spec, families, heat_map, overheads
from pytest_fsstack.report.errors import ReportError

MISSING = "pictures need vl-convert: pip install 'pytest-fsstack[pictures]'"

#: What the page calls.
_START = "window.vegaEmbed = vegaEmbed;"
#: What only a whole specification has, and none of its parts.
_WHOLE = ("$schema", "config", "background")


def missing() -> str:
    """What to install before anything can be drawn; empty if nothing."""
    return "" if importlib.util.find_spec("vl_convert") else MISSING


@functools.cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one JavaScript that needs nothing else; empty without vl-convert."""
    if missing():
        return ""
    import vl_convert

    text = _converted(vl_convert.javascript_bundle, _START)
    # It stands in a page, where this would end it.
    return text.replace("</script", "<\\/script")


def _converted(convert: Callable[..., str], content: object) -> str:
    """What vl-convert makes of it. Raises `ReportError` where that panics, as it does without descriptors."""
    try:
        return convert(content)
    except BaseException as error:
        # It is no `Exception`, so that whoever writes several reports would write none of the others.
        if type(error).__name__ != "PanicException":
            raise
        raise ReportError(f"vl-convert: not written: {error}") from None


def heat_maps(results: Results) -> str:
    """An SVG document: the heat map of each test. Raises `ReportError`."""
    return _svg("heatmap", filter(None, map(heat_map, families(results.chains))))


def forests(results: Results) -> str:
    """An SVG document: each step's overheads over the baseline, with intervals and budgets. Raises `ReportError`."""
    found = (
        overheads(family, step)
        for family in families(results.chains)
        for step in dict.fromkeys(step for chain in family for step in chain.steps)
    )
    return _svg("forest", filter(None, found))


def _svg(name: str, charts: Iterable[Chart]) -> str:
    specs = [chart.spec for chart in charts]
    if not specs:
        raise ReportError(f"{name}: not written: no stack was compared with another")
    if missing():
        raise ReportError(f"{name}: not written: {MISSING}")
    import vl_convert

    parts = [{key: value for key, value in spec.items() if key not in _WHOLE} for spec in specs]
    # On white, because nobody knows what a page that shows it has behind it.
    whole: Spec = {**{key: specs[0][key] for key in _WHOLE}, "background": "white", "vconcat": parts}
    text = _converted(vl_convert.vegalite_to_svg, whole)
    return f"{text.rstrip()}\n"
