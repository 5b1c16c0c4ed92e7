"""Throughput over batch size, and the cost of one over how many there are, as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Colours, and how far a name stands above the end of its line, in points: kts and Java may lie close together.
LINES = {"kts": ("#d62728", 6), "Java": ("#1f77b4", -6), "aiokafka": ("#2ca02c", 0), "kafka-python": ("#7f7f7f", 0)}


def new_pyplot() -> Any:
    """Matplotlib without a window; the same picture gives the same bytes."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "kts"
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """The file's name says its format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def plot_batch_sizes(points: dict[int, dict[str, float]], path: Path) -> None:
    """``points`` are records a second of each contender, by records a batch."""
    pyplot = new_pyplot()
    figure, axes = pyplot.subplots(figsize=(7.5, 4.5), layout="constrained")
    sizes = list(points)
    for name, (colour, raised) in LINES.items():
        rates = [points[size][name] / 1e6 for size in sizes if name in points[size]]
        if len(rates) == len(sizes):
            axes.plot(sizes, rates, color=colour, marker="o", linewidth=2.5 if name == "kts" else 1.5)
            end = sizes[-1], rates[-1]
            axes.annotate(name, end, (8, raised), textcoords="offset points", va="center", color=colour)
    axes.set(xscale="log", yscale="log", xlabel="records a batch", ylabel="million records a second and core")
    axes.set_title("Decoding record batches of magic 2, uncompressed, values of about 100 B, CRC checked", fontsize=10)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(sizes[0] * 0.6, sizes[-1] * 10)
    save(figure, path)
    pyplot.close(figure)


def plot_growth(points: dict[str, dict[int, float]], path: Path) -> None:
    """``points`` are the costs of one by how many there are, of each row; flat is linear, rising is worse."""
    pyplot = new_pyplot()
    figure, axes = pyplot.subplots(figsize=(8.5, 4.5), layout="constrained")
    for name, costs in points.items():
        smallest = max(next(iter(costs.values())), 1e-12)
        axes.plot(list(costs), [cost / smallest for cost in costs.values()], marker="o", label=name)
    axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="number", ylabel="cost of one / at the smallest number")
    axes.set_title("What one costs among many: a flat line is linear growth", fontsize=10)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, frameon=False)
    save(figure, path)
    pyplot.close(figure)
