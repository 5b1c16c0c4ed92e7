"""Throughput over batch size, as a picture."""

from __future__ import annotations

from pathlib import Path

# Colours, and how far a name stands above the end of its line, in points: kts and Java may lie close together.
LINES = {"kts": ("#d62728", 6), "Java": ("#1f77b4", -6), "aiokafka": ("#2ca02c", 0), "kafka-python": ("#7f7f7f", 0)}


def plot_batch_sizes(points: dict[int, dict[str, float]], path: Path) -> None:
    """``points`` are records a second of each contender, by records a batch; the file's name says its format."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "kts"  # the same picture gives the same bytes
    from matplotlib import pyplot

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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
