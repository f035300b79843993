"""Keys that a config.json leaves out mean here what they mean in transformers."""

from __future__ import annotations

import pytest

from cloze.interop.architecture import ARCHITECTURES

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

#: Where None is the default, it is said in another way there: as many layers in the decoder as in the encoder, embeddings as wide
#: as the layers.
_OTHERWISE = {"num_decoder_layers", "embedding_size"}


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) & set(transformers.CONFIG_MAPPING)))
def test_defaults_are_those_of_transformers_and_what_it_does_by_itself_is_understood(name: str) -> None:
    architecture, config = ARCHITECTURES[name], transformers.CONFIG_MAPPING[name]()
    named = [setting for setting in architecture.settings if setting.default is not None or setting.theirs not in _OTHERWISE]
    assert {setting.theirs: setting.default for setting in named} == {
        setting.theirs: getattr(config, setting.theirs) for setting in named
    }
    for key, values in architecture.legal.items():
        assert getattr(config, key, values[0]) in values, key  # version 5 dropped some of the keys
    for head in architecture.heads:
        assert {key: getattr(config, key) for key in head.required} == {**head.required, **head.if_absent}
