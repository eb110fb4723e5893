"""What training does to a batch of digits, and how it goes on where it was ended; training itself takes minutes and is judged by
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


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--steps", "0"], "--steps 0: the range is 1 and more"),
        (["--batch", "0"], "--batch 0: the range is 1 and more"),
        (["--rate", "nan"], "--rate nan"),
        (["--seed", "-1"], "--seed -1"),
        (["--device", "abacus"], "--device abacus"),
        (["--out", "nowhere/w"], "--out nowhere/w: there is no folder nowhere"),
        (["--out", "."], "--out .: is a folder"),
        (["--state", "./w.safetensors"], "--state ./w.safetensors: is the file of --out"),
        (["--state", "nowhere/s"], "--state nowhere/s: there is no folder nowhere"),
    ],
)
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
def test_training_that_was_ended_goes_on_as_if_it_was_not(tmp_path, monkeypatch, capsys, network):
    few = [part[:4] for part in data.load()]
    monkeypatch.setattr(data, "load", lambda: few)
    monkeypatch.setattr(train, "KEPT_EVERY", 2)

    def trained(out, *arguments):
        return train.main(["--network", network, "--steps", "3", "--batch", "2", "--device", "cpu", "--out", str(tmp_path / out), *arguments])

    assert trained("whole") == 0
    loss_of, calls, of_a_step = train.loss_of, [], 2 if train.RECIPES[network].stills else 1

    def ended(*arguments):
        calls.append(0)
        if len(calls) > 2 * of_a_step:  # the third step's
            raise KeyboardInterrupt
        return loss_of(*arguments)

    monkeypatch.setattr(train, "loss_of", ended)
    state = str(tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        trained("parts", "--state", state)
    monkeypatch.setattr(train, "loss_of", loss_of)
    assert trained("parts", "--state", state, "--seed", "1") == 2
    assert f"--state {state}: is of a training with --seed 0, not 1" in capsys.readouterr().err
    assert trained("parts", "--state", state) == 0
    assert "from step 2 on" in capsys.readouterr().err
    whole, parts = load_file(tmp_path / "whole"), load_file(tmp_path / "parts")
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)
    (tmp_path / "state").write_text("a letter")
    assert trained("parts", "--state", state) == 2 and f"--state {state}: " in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["parts", "state", "whole"]
