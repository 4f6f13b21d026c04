"""TwoNN, one pair of points after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence


def dimension(points: Sequence[Sequence[float]]) -> float:
    """Facco et al. 2017: slope through the origin of -log(1 - i/N) over sorted log(r2/r1), the top tenth left out."""
    cloud = list(dict.fromkeys(tuple(map(float, point)) for point in points))
    ratios = []
    for at, point in enumerate(cloud):
        first, second = sorted(math.dist(point, other) for index, other in enumerate(cloud) if index != at)[:2]
        ratios.append(math.log(second / first))
    ratios.sort()
    pairs = [(ratios[i - 1], -math.log(1 - i / len(cloud))) for i in range(1, len(cloud) * 9 // 10 + 1)]
    return math.fsum(x * y for x, y in pairs) / math.fsum(x * x for x, _ in pairs)
