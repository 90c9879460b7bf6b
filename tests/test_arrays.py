"""Arrays in binary columns: unchanged bytes."""

import numpy as np
import pytest

from diagvib.foundation.columns import from_binary, to_binary


@pytest.mark.parametrize("shape", [(7, 4, 5), (1, 3), (0, 3)])
def test_what_goes_in_comes_out(shape):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    column = to_binary(images)
    assert column.to_pylist() == [image.tobytes() for image in images]
    for start in (0, 3):
        assert np.array_equal(from_binary(column[start:], shape[1:]), images[start:])
    with pytest.raises(ValueError, match="widths must match"):
        from_binary(to_binary(np.zeros((2, 5), np.uint8)), shape[1:])
