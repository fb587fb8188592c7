"""Language modelling: GPT-2 on streams of tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gammafl.config.schema import RunConfig
from gammafl.core.errors import InputError, not_installed, require
from gammafl.federated.task import SampleFacts, Split
from gammafl.tasks.data.catalogue import GPT2_BPE, Say, dataset_named, load_files
from gammafl.tasks.data.files import find
from gammafl.tasks.data.text import Tokens, sotu_documents, tokenise, wikitext_documents
from gammafl.tasks.samples import Batch, Indices
from gammafl.tasks.torch_task import TorchTask

SIZES: dict[str, dict[str, Any]] = {"gpt2": {}, "gpt2-tiny": {"n_embd": 64, "n_layer": 2, "n_head": 2}}
"""Differences from GPT-2's own configuration: 124,439,808 parameters, tied embeddings."""


class TokenSamples:
    """Consecutive pieces of `sequence` tokens of a stream. The target is the same piece, one token later."""

    def __init__(self, tokens: Tokens, sequence: int) -> None:
        count = (len(tokens) - 1) // sequence
        require(
            count > 0, f"{len(tokens)} tokens are too few for sequence={sequence}; use fewer clients or a shorter one"
        )
        self.inputs = torch.from_numpy(tokens[: count * sequence].astype(np.int64).reshape(count, sequence))
        self.targets = torch.from_numpy(tokens[1 : count * sequence + 1].astype(np.int64).reshape(count, sequence))

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Indices) -> Batch:
        rows = torch.from_numpy(indices)
        return self.inputs[rows], self.targets[rows]


class CausalLanguageModel(nn.Module):
    """GPT-2 as a function from tokens to the logits of each next token."""

    moves_by_parts = True

    def __init__(self, size: str, pretrained: str | None) -> None:
        super().__init__()
        try:
            from transformers import GPT2Config, GPT2LMHeadModel
        except ImportError:
            raise not_installed("transformers", "gpt2") from None
        if pretrained is None:
            self.model = GPT2LMHeadModel(GPT2Config(**SIZES[size]))
        else:
            self.model = _load_pretrained(GPT2LMHeadModel, pretrained)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


def _load_pretrained(kind: Any, pretrained: str) -> Any:
    """All of GPT-2's weights. An error if some are missing, since those would be random."""
    try:
        model, report = kind.from_pretrained(pretrained, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"can't load GPT-2's weights from {pretrained!r}: {str(error).splitlines()[0]}") from None
    absent = [str(key) for key in [*report["missing_keys"], *report["mismatched_keys"]] if "lm_head" not in str(key)]
    require(not absent, f"{pretrained!r} has no weights for {', '.join(absent[:3])}: not a GPT-2")
    return model


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy per token."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_language_task(
    config: RunConfig, model: str, dataset: str, split: Split, data_dir: Path | None, say: Say
) -> TorchTask:
    """GPT-2 of size `model` on the documents of `dataset`. `split` divides whole documents among the clients."""
    contents = load_files(dataset_named(dataset), data_dir, say)
    documents = wikitext_documents(contents) if dataset == "wikitext2" else sotu_documents(contents)
    brought = data_dir is not None and all(find(data_dir, file.name) for file in GPT2_BPE.files)
    codes = load_files(GPT2_BPE, data_dir if brought else None, say)
    train, validation = tokenise(documents.train, codes), tokenise(documents.validation, codes)
    say(f"weights: {config.pretrained or 'random initialisation, not the pretrained ones'}")
    shards = split(SampleFacts(groups=documents.groups, sizes=np.array([len(tokens) for tokens in train])))
    network = CausalLanguageModel(model, config.pretrained)
    longest = network.model.config.n_positions
    require(config.sequence <= longest, f"sequence={config.sequence}, but this GPT-2 reads at most {longest} tokens")
    return TorchTask(
        config.task,
        network,
        [TokenSamples(_stream(train, shard), config.sequence) for shard in shards],
        TokenSamples(_stream(validation, range(len(validation))), config.sequence),
        config.batch_size,
        loss=token_loss,
        metric="perplexity",
        initialise=None if config.pretrained else initialise_gpt2,
        evaluation_batch=4,
    )


def initialise_gpt2(module: nn.Module) -> None:
    """GPT-2's own random initialisation, in place."""
    assert isinstance(module, CausalLanguageModel)
    module.model.apply(module.model._init_weights)


def _stream(documents: Sequence[Tokens], chosen: Sequence[int] | Indices) -> Tokens:
    return np.concatenate([documents[i] for i in chosen])
