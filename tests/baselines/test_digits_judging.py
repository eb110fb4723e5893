"""What the numbers of samples say: of real digits and videos, and of ones that were spoilt in a known way."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn")
save_file = pytest.importorskip("safetensors.numpy", reason="needs safetensors").save_file

from baselines.pytorch.digits import data, judge  # noqa: E402 - what needs scikit-learn comes behind the skip


def straight(start, end, frames=data.FRAMES):
    return np.linspace(start, end, frames)[None]


def video_of(corners, images=np.ones((1, 3, 3))):
    return data.placed(np, images, corners)


@pytest.fixture(scope="module")
def judged():
    return judge.VideoJudge()


def test_digits_go_a_straight_way_at_one_speed():
    corners = data.path(np, np.random.default_rng(0).random((50, 1 + data.ENDS, 2)))
    assert corners.shape == (50, data.FRAMES, 2) and corners.min() >= 0 and corners.max() <= data.ROOM
    np.testing.assert_allclose(np.diff(corners, 2, axis=1), 0, atol=1e-12)
    assert (np.linalg.norm(corners[:, -1] - corners[:, 0], axis=1) > 2).mean() > 0.8


def test_a_digit_between_pixels_is_shared_by_them():
    one = data.placed(np, np.ones((1, 1, 1)), np.array([[[2.0, 3.0], [2.25, 3.0], [2.5, 3.5]]]))
    assert one.shape == (1, 3, 16, 16)
    assert one[0, 0, 2, 3] == 1 and (one[0, 0] > -1).sum() == 1
    np.testing.assert_allclose(one[0, 1, 2:4, 3], [0.5, -0.5])  # three quarters and one of the way from black to white
    np.testing.assert_allclose(one[0, 2, 2:4, 3:5], -0.5)
    np.testing.assert_allclose((one + 1).sum((-2, -1)), 2)


def test_pytorch_moves_digits_as_numpy_does():
    torch = pytest.importorskip("torch")
    images, uniform = np.random.default_rng(0).random((5, 8, 8)), np.random.default_rng(1).random((5, 1 + data.ENDS, 2))
    expected = data.placed(np, images, data.path(np, uniform))
    moved = data.placed(torch, torch.as_tensor(images), data.path(torch, torch.as_tensor(uniform)))
    np.testing.assert_allclose(moved.numpy(), expected, atol=1e-6)


def test_the_centre_of_a_steady_digit_is_on_a_line_and_of_a_shaken_one_not():
    way = straight([1.5, 2], [9, 8])
    deviation, length = judge.deviation_and_way(video_of(way))
    assert deviation < 0.05 and length == pytest.approx(np.hypot(7.5, 6), abs=0.1)
    shaken = way + np.where(np.arange(data.FRAMES) % 2, 0.5, -0.5)[None, :, None]
    assert judge.deviation_and_way(video_of(shaken))[0] == pytest.approx(np.hypot(0.5, 0.5), abs=0.06)
    assert judge.deviation_and_way(video_of(straight([3, 3], [3, 3])))[1] == pytest.approx(0, abs=1e-9)
    assert judge.deviation_and_way(np.full((1, 16, 16, 16), -1.0)) == (pytest.approx(0), pytest.approx(0))  # nothing to be seen


def test_real_videos_are_real_and_spoilt_ones_are_told(judged):
    videos, labels = judged.held_out, judged.held_out_labels
    real = judged.numbers(judged.moved(data.load()[2]), labels)
    assert real["agreement"][0] > 0.94 and real["deviation_px"][0] < 0.06
    changed = videos.copy()
    changed[:, 9] = np.roll(videos[:, 9], 50, axis=0)  # another digit in one frame
    assert judged.agreement(changed, labels) < 0.25 < 0.94 < judged.agreement(videos, labels)
    assert judged.agreement(videos, (labels + 1) % 10) < 0.05
    noisy = judged.numbers((videos + np.random.default_rng(0).normal(0, 0.3, videos.shape)).clip(-1, 1).astype(np.float32), labels)
    shuffled = judged.numbers(videos[:, np.random.default_rng(0).permutation(data.FRAMES)], labels)
    assert noisy["frechet"][0] > 2 * real["frechet"][1]
    assert noisy["frechet_of_differences"][0] > 10 * real["frechet_of_differences"][1]
    assert shuffled["frechet_of_differences"][0] > 10 * real["frechet_of_differences"][1]  # though every frame is real
    assert shuffled["deviation_px"][0] > 1 and shuffled["frechet"][0] < 0.01


def test_numbers_are_printed_and_written(tmp_path, capsys, judged, monkeypatch):
    monkeypatch.setattr(judge, "VideoJudge", lambda: judged)
    samples, table = tmp_path / "samples.safetensors", tmp_path / "table.csv"
    save_file({"images": judged.held_out[:64, :, None], "labels": judged.held_out_labels[:64]}, samples)
    assert judge.main([str(samples), "--table", str(table)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["samples"] == 64 and printed["agreement"] > 0.9 and printed["agreement_real"] > 0.9
    rows = {row["quantity"]: row for row in csv.DictReader(table.open())}
    assert list(rows) == ["count", "agreement", "frechet", "frechet_of_differences", "deviation_px", "way_px"]
    assert float(rows["way_px"]["real"]) == pytest.approx(printed["way_px_real"], abs=1e-4)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["samples.safetensors", "table.csv"]


MANY = judge.FEATURES + 1 if judge else 33  # of fewer a covariance is singular


@pytest.mark.parametrize("shape, label", [((MANY, 1, 8, 9), 0), ((MANY, 16, 16, 16), 0), ((MANY - 1, 1, 8, 8), 0), ((MANY, 15, 1, 16, 16), 0),
                                          ((MANY, 1, 8, 8), 77), ((MANY, 1, 8, 8), -1), ((2, 1, 8, 8), 0)])  # fmt: skip
def test_other_tensors_are_refused(tmp_path, capsys, shape, label):
    labels = np.full(2 if shape[0] == 2 else MANY, label)
    save_file({"images": np.zeros(shape, np.float32), "labels": labels}, tmp_path / "samples.safetensors")
    assert judge.main([str(tmp_path / "samples.safetensors")]) == 2
    assert "needs finite images [n, 1, 8, 8] or videos [n, 16, 1, 16, 16]" in capsys.readouterr().err
