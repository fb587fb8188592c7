"""The models of the apps, each of 50,000 parameters and more."""

from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from tests.apps.data import MOODS, VOCABULARY


def convolutional() -> nn.Module:
    """As in Flower's quickstart: two convolutions, three layers."""
    first = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Linear(256, 160), nn.ReLU(), nn.Linear(160, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*first, nn.Flatten(), *second)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def normalised() -> nn.Module:
    """With running statistics, and with counters, which are whole numbers."""
    first = [nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU()]
    second = [nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


class Embedding(nn.Module):
    """The sum of a sentence's embeddings, and one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 64)
        self.head = nn.Linear(64, 2)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.5)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.words(words).sum(1))


class Adapters(nn.Module):
    """A small transformer of which only LoRA's matrices and the head are trained.

    It has seen the words before, as a pretrained one has: their moods are in its embeddings. The rest is random.
    """

    def __init__(self) -> None:
        super().__init__()
        settings: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
        settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 16}
        settings |= {"initializer_range": 0.1}
        body = BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY, num_hidden_layers=1, **settings))
        with torch.no_grad():
            body.bert.embeddings.word_embeddings.weight[:, :8] += 0.1 * torch.from_numpy(MOODS)[:, None]
        lora = LoraConfig(task_type="SEQ_CLS", r=64, lora_alpha=64, target_modules=["query", "key", "value", "dense"])
        self.peft: PeftModel = get_peft_model(body, lora)

    def forward(self, words: Tensor) -> Tensor:
        return self.peft(input_ids=words).logits


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """What travels: the whole state, or that of the adapters alone."""
    return get_peft_model_state_dict(model.peft) if isinstance(model, Adapters) else model.state_dict()


def load_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    if isinstance(model, Adapters):
        set_peft_model_state_dict(model.peft, state)
    else:
        model.load_state_dict(state, strict=True)
