import numpy as np

from omnirt.actors.stages.samples import to_int16


def test_loud_samples_stay_at_the_rail():
    assert to_int16(np.array([2.0, -2.0, 0.5, 0.0])).tolist() == [32767, -32767, 16384, 0]
