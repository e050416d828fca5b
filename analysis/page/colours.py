"""Give each cause one colour, in every report, figure and page.

The colours are those of Okabe and Ito 2008, "Color universal design", which are distinct for people with any common
colour blindness. Two causes with the same colour differ in their hatch. `report.css` repeats the colours of what binds
a kernel; a test holds the two together.
"""

from analysis.formats.report import PartKind

BLUE, ORANGE, GREEN, SKY = "#0072B2", "#E69F00", "#009E73", "#56B4E9"
VERMILION, PURPLE, YELLOW, BLACK = "#D55E00", "#CC79A7", "#F0E442", "#222222"
GREY, LIGHT_GREY = "#8a8a8a", "#c9c9c9"
SLATE, WINE, OLIVE = "#66788a", "#882255", "#999933"  # Tol 2021, for what Okabe and Ito's eight leave without a colour

# What binds a kernel, under the names of tables/program.csv.
BOUNDS = {"launch": ORANGE, "host": VERMILION, "memory": BLUE, "compute": GREEN, "latency": PURPLE}

# What a part of a step waits for. Launching and the host have the colours of the kernels that they bind.
PARTS = {
    PartKind.GPU_BUSY: SLATE,
    PartKind.LAUNCHING: ORANGE,
    PartKind.HOST_WORK: VERMILION,
    PartKind.SYNC: YELLOW,
    PartKind.COPIES: SKY,
    PartKind.COMMUNICATION: WINE,
    PartKind.RANK_WAIT: OLIVE,
    PartKind.ALLOCATION: BLACK,
}
OTHER = "#b4b9bf"

# One colour and hatch per stall reason: memory, then execution, then control.
STALLS: dict[str, tuple[str, str]] = {
    "long_scoreboard": (BLUE, ""),
    "lg_throttle": (SKY, ""),
    "short_scoreboard": (GREEN, ""),
    "mio_throttle": (YELLOW, ""),
    "tex_throttle": (SKY, "////"),
    "membar": (BLUE, "////"),
    "drain": (GREEN, "////"),
    "imc_miss": (YELLOW, "////"),
    "wait": (ORANGE, ""),
    "math_pipe_throttle": (VERMILION, ""),
    "gmma": (VERMILION, "////"),
    "dispatch_stall": (ORANGE, "////"),
    "barrier": (PURPLE, ""),
    "branch_resolving": (PURPLE, "////"),
    "no_instruction": (GREY, ""),
    "sleeping": (GREY, "////"),
    "not_selected": (LIGHT_GREY, ""),
    "misc": (LIGHT_GREY, "////"),
}
