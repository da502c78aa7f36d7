"""What trainer and worker must have in common, and how to say that they do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: what differs, by the name of it in a handshake, in words
_DIFFERENCES = {
    "source": "its source has different samples",
    "order": "its order (shuffle, take, skip, repeat, mix) differs",
    "stages": "its stages, or their arguments, differ",
    "functions": "the code of a function, or a value that it uses, differs",
    "fields": "its samples have different fields, types or shapes",
    "seed": "its seed differs",
    "on_error": "its on_error() differs",
}


def differences(mine: Mapping[str, str], its: Mapping[str, str], but: Collection[str] = ()) -> list[str]:
    """What is not the same in two pipelines, in words; what is in `but` may differ."""
    told = {name: words for name, words in _DIFFERENCES.items() if name not in but and mine.get(name) != its.get(name)}
    if "source" in told and mine.get("samples") != its.get("samples"):
        told["source"] += f" ({its.get('samples') or 'some'}, and not {mine.get('samples') or 'as many'})"
    if mine.get("python") != its.get("python"):
        told.pop("functions", None)  # versions of Python make other code
    return [*told.values()]
