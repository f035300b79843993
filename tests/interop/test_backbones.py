"""Trained networks of pictures and sound as extractors of features: equal to transformers' own states, by folder and by name."""

from __future__ import annotations

import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.cli.main import main
from cloze.corpus.items import read_pictures
from cloze.corpus.items.sounds import write_sounds
from cloze.errors import CheckpointError
from cloze.interop.backbones import picture_extractor, speech_network
from tests.hub_server import Hub, serving

image = pytest.importorskip("PIL.Image", reason="reading pictures needs pillow")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SIDE = 32
ONE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def configs() -> dict[str, Any]:
    """A tiny network of each layout: a class token, registers, a map, joined patches, a vision tower."""
    return {
        "vit": transformers.ViTConfig(**ONE, image_size=SIDE, patch_size=8),
        "deit": transformers.DeiTConfig(**ONE, image_size=SIDE, patch_size=8),
        "dinov2_with_registers": transformers.Dinov2WithRegistersConfig(**ONE, image_size=SIDE, patch_size=8),
        "vit_mae": transformers.ViTMAEConfig(**ONE, image_size=SIDE, patch_size=8),
        "resnet": transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic"),
        "swin": transformers.SwinConfig(
            image_size=SIDE, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4,
        ),
        "clip": transformers.CLIPConfig(
            vision_config={**ONE, "image_size": SIDE, "patch_size": 8}, text_config={**ONE, "vocab_size": 20}, projection_dim=8,
        ),
    }  # fmt: skip


def write_model(folder: Path, name: str, *, classes: tuple[str, ...] = ()) -> Path:
    """A random network in a folder, with the settings of its pictures."""
    torch.manual_seed(0)
    config = configs()[name]
    kind = transformers.AutoModel
    if classes:
        config.id2label, kind = dict(enumerate(classes)), transformers.AutoModelForImageClassification
    kind.from_config(config).eval().save_pretrained(folder)
    settings = {"do_resize": True, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3}
    crop = {"do_center_crop": True, "crop_size": {"height": SIDE, "width": SIDE}, "size": {"shortest_edge": SIDE + 8}}
    whole = {"size": {"height": SIDE, "width": SIDE}}
    kinds = {"clip": ("CLIPImageProcessor", crop), "dinov2_with_registers": ("BitImageProcessor", crop)}
    processor, size = kinds.get(name, ("ViTImageProcessor", whole))
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": processor, **settings, **size}))
    return folder


def write_pictures(folder: Path, count: int = 3) -> Path:
    """Pictures of different sizes, of random colours."""
    draw = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        pixels = draw.integers(0, 256, (20 + 4 * number, 30, 3), dtype=np.uint8)
        image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def pixels_of(path: Path) -> torch.Tensor:
    """The whole picture as the settings say: bicubic, scaled, normalised."""
    whole = image.open(path).resize((SIDE, SIDE), resample=image.Resampling.BICUBIC)
    return torch.from_numpy((np.asarray(whole, np.float32) / 255 - 0.5) / 0.25).permute(2, 0, 1)[None]


def features(folder: Path, *words: str) -> dict[str, np.ndarray]:
    out = folder / "f.npz"
    assert main(["features", str(folder / "pictures"), "--out", str(out), "--number", "float32", "--overwrite", *words]) == 0
    with np.load(out) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("name", ["vit", "deit", "dinov2_with_registers", "resnet", "swin", "clip"])
def test_the_features_of_cells_are_the_last_states_of_transformers(name: str, tmp_path: Path) -> None:
    model, pictures = write_model(tmp_path / "model", name), write_pictures(tmp_path / "pictures")
    made = features(tmp_path, "--model", str(model), "--batch", "2")
    network = transformers.AutoModel.from_pretrained(model).eval()
    network = network.vision_model if name == "clip" else network
    with torch.inference_mode():
        for number in range(3):
            states = network(pixel_values=pixels_of(pictures / f"{number}.png")).last_hidden_state[0]
            cells = states.flatten(1).T if states.ndim == 3 else states[-(made["offsets"][1]) :]
            rows = made["features"][made["offsets"][number] : made["offsets"][number + 1]]
            np.testing.assert_allclose(rows, cells.numpy(), atol=1e-5)
    side = int(np.sqrt(made["offsets"][1]))
    assert side**2 == made["offsets"][1] and made["boxes"][1].tolist() == [1 / side, 0, 2 / side, 1 / side]
    assert made["boxes"][side].tolist() == [0, 1 / side, 1 / side, 2 / side]


def test_a_box_has_the_mean_of_the_map_over_it(tmp_path: Path) -> None:
    model, pictures = write_model(tmp_path / "model", "vit"), write_pictures(tmp_path / "pictures", 1)
    boxes = {"0.png": [[0, 0, 0.5, 0.25], [0.125, 0, 0.5, 1], [0.3, 0.3, 0.3, 0.3]]}
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    made = features(tmp_path, "--model", str(model), "--boxes", str(tmp_path / "boxes.json"))
    states = transformers.AutoModel.from_pretrained(model).eval()(pixel_values=pixels_of(pictures / "0.png")).last_hidden_state
    cells = states[0, 1:].unflatten(0, (4, 4)).detach()
    weighted = (cells[:, 0] * 0.5 + cells[:, 1]).mean(0) / 1.5  # half of the first column, all of the second
    expected = torch.stack([cells[0, :2].mean(0), weighted, cells[1, 1]])
    np.testing.assert_allclose(made["features"], expected.numpy(), atol=1e-5)
    assert made["boxes"][1].tolist() == [0.125, 0, 0.5, 1]


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_crops_have_the_probabilities_of_the_classifier(name: str, tmp_path: Path) -> None:
    classes = ("ant", "bee", "cat")
    model, pictures = write_model(tmp_path / "model", name, classes=classes), write_pictures(tmp_path / "pictures", 1)
    made = features(tmp_path, "--model", str(model), "--grid", "2", "--crops", "--batch", "3")
    whole = np.asarray(image.open(pictures / "0.png"))
    image.fromarray(whole[10:, :15]).save(tmp_path / "crop.png")  # the third cell of four
    network = transformers.AutoModelForImageClassification.from_pretrained(model).eval()
    with torch.inference_mode():
        logits = network(pixel_values=pixels_of(tmp_path / "crop.png")).logits[0]
    np.testing.assert_allclose(made["probabilities"][2], logits.softmax(0).numpy(), atol=1e-5)
    assert made["class"][2] == logits.argmax() and made["score"][2] == made["probabilities"][2].max()
    assert tuple(made["class_names"]) == classes and made["features"].shape[0] == made["boxes"].shape[0] == 4


def test_an_interrupted_run_continues_with_equal_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, pictures = write_model(tmp_path / "model", "resnet"), write_pictures(tmp_path / "pictures", 5)
    words = ["--model", str(model), "--batch", "2"]
    whole = features(tmp_path, *words)
    good = (pictures / "3.png").read_bytes()
    (pictures / "3.png").write_bytes(good[:60])
    capsys.readouterr()
    again = ["features", str(pictures), "--out", str(tmp_path / "again.npz"), "--number", "float32", *words]
    assert main(again) == 2
    assert "3.png: cannot be read as a picture" in capsys.readouterr().err
    record = tmp_path / "again.npz.partial" / "pictures.jsonl"
    lines = record.read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["0.png", "1.png"] and not (tmp_path / "again.npz").exists()
    record.write_text(f"{lines[0]}\n")  # as after a kill between two pictures that were read together
    (pictures / "3.png").write_bytes(good)
    assert main(again) == 0
    with np.load(tmp_path / "again.npz") as file:
        assert all(np.array_equal(file[name], value) for name, value in whole.items())


def test_detections_of_torchvision_are_regions_with_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, pictures = write_model(tmp_path / "model", "resnet", classes=("ant", "bee")), write_pictures(tmp_path / "pictures", 2)
    one = {"boxes": torch.tensor([[0.0, 0, 15, 10], [5, 5, 30, 20]]), "labels": torch.tensor([3, 1]),
           "scores": torch.tensor([0.9, 0.5]), "masks": torch.zeros(2, 1, 4, 4)}  # fmt: skip
    none = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64), "scores": torch.zeros(0)}
    torch.save([one, none], tmp_path / "d.pt")
    made = features(tmp_path, "--model", str(model), "--boxes", str(tmp_path / "d.pt"))
    assert made["offsets"].tolist() == [0, 2, 2] and made["class"].tolist() == [3, 1] and "class_names" not in made
    assert made["boxes"].tolist() == [[0, 0, 0.5, 0.5], [pytest.approx(1 / 6), 0.25, 1, 1]]
    torch.save({"1.png": one}, tmp_path / "d.pt")
    again = features(tmp_path, "--model", str(model), "--boxes", str(tmp_path / "d.pt"), "--crops")
    assert again["keys"].tolist() == ["1.png"] and again["class"].tolist() == [3, 1] and again["probabilities"].shape == (2, 2)
    capsys.readouterr()
    run = ["features", str(pictures), "--out", str(tmp_path / "g.npz"), "--boxes", str(tmp_path / "d.pt")]
    for content, what in (([one], "has the detections of 1 pictures, and the folder has 2"), ([Path("x")] * 2, "holds objects"),
                          ([{"labels": one["labels"]}] * 2, "without boxes"), (7, "holds a int; expected a list")):  # fmt: skip
        torch.save(content, tmp_path / "d.pt")
        assert main(run) == 2
        assert what in capsys.readouterr().err


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the model `org/vit`, and an empty cache."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    served = Hub({"org/vit": write_model(tmp_path / "served", "vit")})
    with serving(served) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield served


def test_a_name_of_the_hub_gives_the_features_of_its_folder(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pictures(tmp_path / "pictures", 1)
    named = features(tmp_path, "--model", "org/vit")
    assert str(named["extractor"]) == f"org/vit@{hub.commit('org/vit')}"
    local = features(tmp_path, "--model", str(hub.repositories["org/vit"]))
    assert np.array_equal(named["features"], local["features"]) and str(local["extractor"]).startswith("served sha256=")
    capsys.readouterr()
    assert main(["features", str(tmp_path / "pictures"), "--out", "g.npz", "--model", "org/nobody"]) == 2
    assert "org/nobody: there is no such folder, and no such model on the Hugging Face Hub" in capsys.readouterr().err


def text_model(folder: Path) -> Path:
    config = transformers.BertConfig(**ONE, vocab_size=20, max_position_embeddings=8)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def cut_model(folder: Path) -> Path:
    """A network of one layer under the settings of one with two."""
    from safetensors.torch import load_file, save_file

    write_model(folder, "vit")
    tensors = {name: value for name, value in load_file(folder / "model.safetensors").items() if "layer.1" not in name}
    assert len(tensors) < len(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def with_code(folder: Path) -> Path:
    write_model(folder, "vit")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Mine", "AutoModel": "code.Mine"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise SystemExit(7)")
    return folder


def test_models_that_are_no_backbone_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = str(write_pictures(tmp_path / "pictures", 1))

    def refusal(model: str, *words: str) -> str:
        capsys.readouterr()
        assert main(["features", pictures, "--out", str(tmp_path / "f.npz"), "--model", model, *words]) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error
        return error

    assert "there is no such file or folder; expected a folder of transformers or timm" in refusal(str(tmp_path / "nothing"))
    assert "is a model of type 'bert', which does not read pictures alone" in refusal(str(text_model(tmp_path / "text")))
    assert "lacks weights of ViTModel: " in refusal(str(cut_model(tmp_path / "cut")))
    assert "transformers does not open it as a model" in refusal(str(with_code(tmp_path / "code")))
    assert "gives different features each time it reads the same" in refusal(str(write_model(tmp_path / "mae", "vit_mae")))
    model = str(write_model(tmp_path / "model", "vit"))
    assert "--crops cuts regions out of the pictures. Name them: --grid 3" in refusal(model, "--crops")
    assert "--model names a trained network; --with is for features without one" in refusal(model, "--with", "pixels")
    (tmp_path / "model" / "preprocessor_config.json").unlink()
    assert "has no preprocessor_config.json" in refusal(model)


def test_transformers_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "model", "vit")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    from cloze.errors import MissingExtra

    with pytest.raises(MissingExtra, match=r"needs the package transformers, .*\n.*cloze-lm\[backbones\]"):
        picture_extractor(str(model))


# --- sound ------------------------------------------------------------------------------------------------------------

RATE = 16000


def write_speech_model(folder: Path, name: str) -> Path:
    torch.manual_seed(0)
    if name == "whisper":
        sizes = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 16)
        sizes |= dict.fromkeys(("encoder_layers", "decoder_layers", "bos_token_id", "decoder_start_token_id"), 1)
        sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "eos_token_id": 2, "pad_token_id": 0}
        sizes |= {"vocab_size": 30, "num_mel_bins": 8, "max_source_positions": 50}
        transformers.WhisperModel(transformers.WhisperConfig(**sizes)).save_pretrained(folder)
        transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)
        return folder
    convolutions = {"conv_dim": [8, 8], "conv_stride": [20, 16], "conv_kernel": [20, 16], "num_feat_extract_layers": 2}
    kind = {"wav2vec2": "Wav2Vec2", "hubert": "Hubert"}[name]
    config = getattr(transformers, f"{kind}Config")(
        **ONE, **convolutions, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, vocab_size=10
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE).save_pretrained(folder)
    return folder


def write_recording(folder: Path, rate: int = RATE) -> tuple[Path, np.ndarray]:
    samples = (np.random.default_rng(0).normal(size=rate // 2) * 3000).astype("<i2")
    with wave.open(str(folder / "a.wav"), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(rate)
        stream.writeframes(samples.tobytes())
    line = {"audio": "a.wav", "text": "two words", "words": [[0.0, 0.2], [0.2, 0.5]]}
    (folder / "said.jsonl").write_text(json.dumps(line) + "\n")
    return folder / "said.jsonl", samples / 2.0**15


@pytest.mark.parametrize("name", ["wav2vec2", "hubert", "whisper"])
def test_frames_of_words_are_the_last_states_of_transformers(name: str, tmp_path: Path) -> None:
    model = write_speech_model(tmp_path / "model", name)
    file, samples = write_recording(tmp_path)
    write_sounds([file], tmp_path / "s.npz", speech_network(str(model), frames=2))
    (picture,) = read_pictures(tmp_path / "s.npz").pictures
    assert set(picture.arrays) == {"features", "times"}
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model)
    given = extractor(samples.astype(np.float32), sampling_rate=RATE, return_tensors="pt")
    network = transformers.AutoModel.from_pretrained(model).eval()
    network = network.get_encoder() if name == "whisper" else network
    with torch.inference_mode():
        states = network(next(iter(given.values()))).last_hidden_state[0].numpy()
    seconds = 1.0 if name == "whisper" else 0.5
    index = [int(moment / seconds * len(states)) for moment in (0.05, 0.15, 0.275, 0.425)]
    np.testing.assert_allclose(picture.arrays["features"].reshape(4, 16), states[index], atol=2e-3)  # float16


def test_recordings_and_models_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_speech_model(tmp_path / "model", "wav2vec2")
    file, _ = write_recording(tmp_path, rate=8000)
    sounds = ["corpus", "sounds", str(file), "--out", str(tmp_path / "s.npz"), "--model"]
    assert main([*sounds, str(model)]) == 2
    assert "a.wav: has 8000 samples per second, and model reads 16000.\n  Convert it: ffmpeg" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="is a model of type 'vit', which does not read sound"):
        speech_network(str(write_model(tmp_path / "vit", "vit")))
    write_recording(tmp_path)
    assert main([*sounds, str(model), "--frames", "2"]) == 0
    assert "2 × 16 numbers each" in (shown := capsys.readouterr().out) and "--set network.items.frames=2" in shown
