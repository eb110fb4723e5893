"""What training does to a batch of digits; training itself takes minutes and is judged by
scripts/judge-digits."""

import pytest

try:
    import torch
    from safetensors.torch import load_file

    from baselines.pytorch.digits import data, train
except ImportError:
    torch = None

pytestmark = pytest.mark.skipif(torch is None, reason="needs PyTorch and scikit-learn")


def test_a_tenth_of_the_labels_is_left_out_whole():
    labels = torch.eye(10)[torch.arange(20_000) % 10]
    left = train.without_some(labels, torch.Generator().manual_seed(0))
    empty = left.sum(1) == 0
    assert torch.equal(left[~empty], labels[~empty])
    assert empty.float().mean().item() == pytest.approx(train.UNLABELLED, abs=0.01)  # five standard deviations
    assert not torch.equal(left, train.without_some(labels, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("arguments, says", [
    (["--steps", "0"], "--steps 0: the range is 1 and more"),
    (["--batch", "0"], "--batch 0: the range is 1 and more"),
    (["--rate", "nan"], "--rate nan"),
    (["--seed", "-1"], "--seed -1"),
    (["--device", "abacus"], "--device abacus"),
    (["--out", "nowhere/w"], "--out nowhere/w: there is no folder nowhere"),
    (["--out", "."], "--out .: is a folder"),
])
def test_wrong_arguments_are_refused_before_training(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "train", lambda *_: pytest.fail("trained"))
    assert train.main(["--out", "w.safetensors", "--device", "cpu", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value, code", [(1.0, 0), (float("nan"), 2)])
def test_weights_are_written_whole_and_finite(tmp_path, monkeypatch, value, code):
    network = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(network.weight, value)
    monkeypatch.setattr(train, "train", lambda *_: network)
    (tmp_path / "w.safetensors").write_text("mine")
    assert train.main(["--out", str(tmp_path / "w.safetensors"), "--device", "cpu"]) == code
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]
    assert ((tmp_path / "w.safetensors").read_bytes() == b"mine") == (code == 2)


def test_videos_are_of_the_images_that_move():
    images = torch.as_tensor(data.load()[0][:7])
    videos = train.moved(images, torch.Generator().manual_seed(0))
    assert videos.shape == (7, 16, 1, 16, 16) and videos.min() == -1 and videos.max() <= 1
    ink = (videos + 1).sum((-3, -2, -1))
    torch.testing.assert_close(ink, (images + 1).sum((-2, -1))[:, None].expand_as(ink))  # in each frame all of it


@pytest.mark.parametrize("network", ["digits", "moving-digits"])
def test_a_few_steps_give_finite_weights_again(tmp_path, monkeypatch, network):
    few = [part[:4] for part in data.load()]
    monkeypatch.setattr(data, "load", lambda: few)
    for out in "ab":
        assert train.main(["--network", network, "--steps", "2", "--batch", "2", "--device", "cpu", "--out", str(tmp_path / out)]) == 0
    one, again, fresh = load_file(tmp_path / "a"), load_file(tmp_path / "b"), train.RECIPES[network].build().state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.items())
    assert {name: tensor.shape for name, tensor in one.items()} == {name: tensor.shape for name, tensor in fresh.items()}
