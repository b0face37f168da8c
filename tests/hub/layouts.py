"""Model folders as they are found on hubs, made small with random weights by the libraries that publish them.

Each layout is a function that fills a folder, and a row of LAYOUTS that says which published models look so, and with
what it is compared.
"""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bertie.text.tokenizer import Tokenizer

WIDTH = 32
CORPUS = """The lighthouse keeper's daughter wasn't tall; she was 1.83 m, naïve and café-loving!
It was a quiet film with e-mail a_b@c.org, and the tide came in and went out again.
등대지기의 딸은 키가 컸고 바다를 좋아했다. 오늘은 비가 온다.
Tax returns are due in April 2024: $5, 50%, (see below).
query: passage: refund delivery praise Refund DELIVERY Straße İstanbul ﬁne""".split("\n")
TEXTS = [
    "The lighthouse keeper lit the lamp.",
    "Ｆｕｌｌ－ｗｉｄｔｈ　ｌｅｔｔｅｒｓ，１２３",
    "a family 👨‍👩‍👧, a thumb 👍🏽 and e\u0301 n\u0303 \u0489\u0489\u0489",
    "a NUL \x00 in the tide\u200b\ufeff",
    "한국어 문장도 읽는다. ᄒ\u1161ᆫ",
    "naïve café, e-mail: a_b@c.org; $5 -- (50%) … “quoted” ﬁne Straße İI",
    "[CLS] and <s> and [MASK] are written out </s>",
    "x" * 300,
    " \t two   spaces \n and a line ",
    "the tide came in and went out again " * 625,  # 5,000 words
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]
TINY: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.2,
}


@dataclass(frozen=True)
class Layout:
    """A way folders look. like: published models that do; compared: hidden, head, vector or score.

    refused: what the error says where it is not opened, whatever `compared` is.
    """

    build: Callable[[Path], None]
    like: str
    compared: str = "head"
    refused: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    """Of both sides when vectors are asked for."""

    @property
    def name(self) -> str:
        """As tests and the table call it."""
        return self.build.__name__


# Tokenizers ----------------------------------------------------------------------------------------------------------


@cache
def wordpiece(lowercase: bool) -> str:
    """tokenizer.json of a small WordPiece vocabulary."""
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL))
    engine.decoder = decoders.WordPiece()
    return engine.to_str()


def bert_tokenizer(folder: Path, *, lowercase: bool = True, alone: bool = False, **settings: Any) -> int:
    """BERT's files; alone: vocab.txt without tokenizer.json, as in 2019. -> entries"""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads(wordpiece(lowercase))["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    if alone:
        told = {"do_lower_case": lowercase, **settings}
        (folder / "tokenizer_config.json").write_text(json.dumps(told))
    else:
        made = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=lowercase, **settings)
        made.save_pretrained(folder)
    return len(pieces)


@cache
def byte_level() -> tuple[dict[str, int], list[Any]]:
    """vocab.json and merges.txt of a small byte-level BPE."""
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=500,
            special_tokens=[*FAIRSEQ, "<mask>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    model = json.loads(engine.to_str())["model"]
    return model["vocab"], model["merges"]


def roberta_tokenizer(folder: Path) -> int:
    """RoBERTa's files. -> entries"""
    vocabulary, merges = byte_level()
    made = transformers.RobertaTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in merges])
    made.save_pretrained(folder)
    return len(vocabulary)


@cache
def pieces(**options: Any) -> bytes:
    """A small SentencePiece model of unigrams."""
    found = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4),
        model_writer=found,
        minloglevel=2,
        vocab_size=200,
        hard_vocab_limit=False,
        **options,
    )
    return found.getvalue()


def sentencepiece_tokenizer(folder: Path, family: str, **options: Any) -> int:
    """A SentencePiece model alone, as older folders have it; config.json says of which family. -> entries"""
    folder.mkdir(parents=True, exist_ok=True)
    name = "spiece.model" if family == "t5" else "sentencepiece.bpe.model"
    (folder / name).write_bytes(pieces(**options))
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return Tokenizer.load(folder).vocab_size


def xlmr_tokenizer(folder: Path) -> int:
    """XLM-R's files. -> entries"""
    return sentencepiece_tokenizer(folder, "xlm-roberta")


# Models --------------------------------------------------------------------------------------------------------------


def model(folder: Path, kind: str, config: str, *, safe: bool = True, seed: int = 0, **options: Any) -> Any:
    """A random model of a class of `transformers`, saved. Its biases and norms are random too."""
    torch.manual_seed(seed)
    made = getattr(transformers, kind)(getattr(transformers, config)(**options)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    made.save_pretrained(folder)
    return made


def bert(folder: Path, kind: str = "BertModel", *, tokenizer: dict[str, Any] | None = None, **options: Any) -> Any:
    """A BERT with its tokenizer."""
    size = bert_tokenizer(folder, **(tokenizer or {}))
    return model(folder, kind, "BertConfig", **{**TINY, "vocab_size": size, "max_position_embeddings": 64, **options})


def xlmr(folder: Path, kind: str = "XLMRobertaModel", *, positions: int = 66, **options: Any) -> Any:
    """An XLM-R with its tokenizer."""
    config = {**TINY, "vocab_size": xlmr_tokenizer(folder), "max_position_embeddings": positions, "type_vocab_size": 1}
    return model(folder, kind, "XLMRobertaConfig", pad_token_id=1, bos_token_id=0, eos_token_id=2, **config, **options)


def roberta(folder: Path, kind: str = "RobertaModel", **options: Any) -> Any:
    """A RoBERTa with its tokenizer."""
    config = {**TINY, "vocab_size": roberta_tokenizer(folder), "max_position_embeddings": 66, "type_vocab_size": 1}
    return model(folder, kind, "RobertaConfig", pad_token_id=1, bos_token_id=0, eos_token_id=2, **config, **options)


def distilbert(folder: Path, kind: str = "DistilBertModel", **options: Any) -> Any:
    """A DistilBERT with its tokenizer."""
    sizes = {"dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "initializer_range": 0.2}
    config = {**sizes, "vocab_size": bert_tokenizer(folder), "max_position_embeddings": 64}
    return model(folder, kind, "DistilBertConfig", **config, **options)


def wrapped_in(folder: Path, outer: str) -> None:
    """Put a name before those of the weights; what their library can open stays in the folder `peer`."""
    shutil.copytree(folder, folder / "peer")
    rewritten(folder, lambda state: {f"{outer}{name}": x for name, x in state.items()})


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """The folder's weights, changed."""
    path = folder / "model.safetensors"
    save_file({name: x.contiguous().clone() for name, x in change(load_file(path)).items()}, path)


def told(folder: Path, name: str = "config.json", without: tuple[str, ...] = (), **changes: Any) -> None:
    """A JSON file of the folder with keys changed and left out."""
    path = folder / name
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in {**found, **changes}.items() if key not in without}))


def sentences(folder: Path, base: Callable[[Path], Any], pooling: Any, *more: Any, **options: Any) -> None:
    """A folder of `sentence-transformers` around a model."""
    base(folder / "base")
    torch.manual_seed(2)
    modules = [Transformer(str(folder / "base"), max_seq_length=48), Pooling(WIDTH, pooling), *more]
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))
    shutil.rmtree(folder / "base")


def named(*labels: str) -> dict[str, Any]:
    """Keys of a config that name labels."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


# Layouts -------------------------------------------------------------------------------------------------------------


def bert_mlm(folder: Path) -> None:
    bert(folder, "BertForMaskedLM")


def bert_cased(folder: Path) -> None:
    bert(folder, "BertForMaskedLM", tokenizer={"lowercase": False})


def bert_of_2019(folder: Path) -> None:
    bert(folder, tokenizer={"alone": True})
    told(folder, without=("model_type", "architectures", "transformers_version", "dtype", "layer_norm_eps"))
    rewritten(
        folder,
        lambda state: {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
            for name, x in state.items()
        },
    )


def wrapped(folder: Path) -> None:
    bert(folder)
    wrapped_in(folder, "_orig_mod.module.")


def within_a_model(folder: Path) -> None:
    bert(folder, "BertForSequenceClassification", num_labels=3)
    wrapped_in(folder, "model.")


def sharded(folder: Path) -> None:
    bert(folder).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink(missing_ok=True)


def half_precision(folder: Path) -> None:
    bert(folder, "BertForSequenceClassification", num_labels=2).half().save_pretrained(folder)


def bfloat16(folder: Path) -> None:
    bert(folder).bfloat16().save_pretrained(folder)


def untied(folder: Path) -> None:
    bert(folder, "BertForMaskedLM", tie_word_embeddings=False)


def untied_roberta(folder: Path) -> None:
    roberta(folder, "RobertaForMaskedLM", tie_word_embeddings=False)


def tied_and_stored(folder: Path) -> None:
    bert(folder, "BertForMaskedLM")
    name = "bert.embeddings.word_embeddings.weight"
    rewritten(folder, lambda state: {**state, "cls.predictions.decoder.weight": state[name]})


def activation_table(folder: Path) -> None:
    bert(folder, hidden_act="quick_gelu")


def activation_of_old(folder: Path) -> None:
    bert(folder, hidden_act="gelu_fast")


def added_tokens(folder: Path) -> None:
    bert(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["zorblax", tokenizers.AddedToken("tide", lstrip=True, single_word=True)])
    tokenizer.add_tokens(["[E1]"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    bert_again = transformers.BertModel.from_pretrained(folder)
    bert_again.resize_token_embeddings(len(tokenizer))
    bert_again.save_pretrained(folder)


def minilm(folder: Path) -> None:
    sentences(folder, bert, "mean", Normalize())


def bge(folder: Path) -> None:
    prompts = {"query": "query: ", "document": ""}
    sentences(folder, bert, "cls", Normalize(), prompts=prompts)


def e5(folder: Path) -> None:
    sentences(folder, bert, "mean", Normalize())


def e5_with_prompts(folder: Path) -> None:
    prompts = {"query": "query: ", "passage": "passage: "}
    sentences(folder, xlmr, "mean", Normalize(), prompts=prompts, default_prompt_name="passage")


def paraphrase_multilingual(folder: Path) -> None:
    sentences(folder, xlmr, "mean")


def bge_m3(folder: Path) -> None:
    sentences(folder, lambda inner: xlmr(inner, positions=8194), "cls", Normalize())


def labse(folder: Path) -> None:
    sentences(folder, bert, "cls", Dense(WIDTH, WIDTH), Normalize())


def distiluse(folder: Path) -> None:
    sentences(folder, distilbert, "mean", Dense(WIDTH, 20))


def sgpt(folder: Path) -> None:
    sentences(folder, bert, "weightedmean")


def last_token(folder: Path) -> None:
    sentences(folder, bert, "lasttoken", Normalize())


def several_joined(folder: Path) -> None:
    sentences(folder, bert, ("cls", "mean", "max", "mean_sqrt_len_tokens"))


def matryoshka(folder: Path) -> None:
    sentences(folder, bert, "mean", truncate_dim=8, similarity_fn_name="dot")


def sentences_of_2020(folder: Path) -> None:
    sentences(folder, bert, "mean")
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in folder.iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json", "README.md"):
            path.rename(inner / path.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = inner.name
    modules = [
        {**module, "type": f"sentence_transformers.models.{name}"}
        for module, name in zip(modules, ("Transformer", "Pooling"), strict=True)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    old = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))


def ko_sroberta(folder: Path) -> None:
    def base(inner: Path) -> None:
        size = bert_tokenizer(inner, lowercase=False)
        sizes = {**TINY, "vocab_size": size, "max_position_embeddings": 66, "type_vocab_size": 1}
        model(inner, "RobertaModel", "RobertaConfig", pad_token_id=1, **sizes)

    sentences(folder, base, "mean")


def kcbert(folder: Path) -> None:
    bert(folder, "BertForMaskedLM", tokenizer={"lowercase": False, "alone": True}, max_position_embeddings=48)


def koelectra(folder: Path) -> None:
    size = bert_tokenizer(folder, lowercase=False)
    sizes = {**TINY, "vocab_size": size, "embedding_size": 16, "max_position_embeddings": 64}
    model(folder, "ElectraForPreTraining", "ElectraConfig", **sizes)


def sst2_distilbert(folder: Path) -> None:
    distilbert(folder, "DistilBertForSequenceClassification", **named("NEGATIVE", "POSITIVE"))


def twitter_roberta(folder: Path) -> None:
    roberta(folder, "RobertaForSequenceClassification", **named("negative", "neutral", "positive"))


def finbert(folder: Path) -> None:
    bert(folder, "BertForSequenceClassification", **named("positive", "negative", "neutral"))


def toxic_bert(folder: Path) -> None:
    labels = named("toxic", "severe_toxic", "obscene", "threat")
    bert(folder, "BertForSequenceClassification", problem_type="multi_label_classification", **labels)


def ms_marco(folder: Path) -> None:
    bert(folder, "BertForSequenceClassification", num_labels=1)
    CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity()).save(str(folder))


def bge_reranker(folder: Path) -> None:
    xlmr(folder, "XLMRobertaForSequenceClassification", num_labels=1)


def stsb_cross_encoder(folder: Path) -> None:
    roberta(folder, "RobertaForSequenceClassification", num_labels=1)
    told(folder, sbert_ce_default_activation_function="torch.nn.modules.activation.Sigmoid")


def ner(folder: Path) -> None:
    labels = named("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    bert(folder, "BertForTokenClassification", tokenizer={"lowercase": False}, **labels)


def roberta_squad2(folder: Path) -> None:
    roberta(folder, "RobertaForQuestionAnswering")


def xlmr_nli(folder: Path) -> None:
    xlmr(folder, "XLMRobertaForSequenceClassification", **named("contradiction", "neutral", "entailment"))


def flan_t5(folder: Path) -> None:
    size = sentencepiece_tokenizer(folder, "t5", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    sizes = {"d_model": WIDTH, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": size}
    options = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
    model(folder, "T5ForConditionalGeneration", "T5Config", pad_token_id=0, eos_token_id=1, **sizes, **options)


def camembert(folder: Path) -> None:
    size = sentencepiece_tokenizer(folder, "camembert")
    sizes = {**TINY, "vocab_size": size, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1}
    model(folder, "CamembertForMaskedLM", "CamembertConfig", **sizes)


def albert(folder: Path) -> None:
    size = bert_tokenizer(folder)
    sizes = {**TINY, "vocab_size": size, "embedding_size": 16, "max_position_embeddings": 64}
    model(folder, "AlbertForMaskedLM", "AlbertConfig", **sizes)


def all_mpnet(folder: Path) -> None:
    def base(inner: Path) -> None:
        vocabulary = json.loads(wordpiece(True))["model"]["vocab"]
        found = sorted(vocabulary, key=vocabulary.__getitem__)
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *found, "<mask>"]
        inner.mkdir(parents=True)
        (inner / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
        transformers.MPNetTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}).save_pretrained(inner)
        model(inner, "MPNetModel", "MPNetConfig", **{**TINY, "vocab_size": len(pieces), "max_position_embeddings": 66})

    sentences(folder, base, "mean", Normalize())


DISENTANGLED: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 8,
    "max_relative_positions": 20,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
}


def kf_deberta(folder: Path) -> None:
    size = bert_tokenizer(folder, lowercase=False)
    model(folder, "DebertaV2ForMaskedLM", "DebertaV2Config", **TINY, **DISENTANGLED, vocab_size=size)
    told(folder, "tokenizer_config.json", tokenizer_class="BertTokenizer")


def deberta_nli(folder: Path) -> None:
    size = bert_tokenizer(folder)
    labels = named("entailment", "neutral", "contradiction")
    kind = "DebertaV2ForSequenceClassification"
    model(folder, kind, "DebertaV2Config", **TINY, **DISENTANGLED, **labels, vocab_size=size)
    told(folder, "tokenizer_config.json", tokenizer_class="BertTokenizer")


def modernbert(folder: Path, kind: str = "ModernBertForMaskedLM", **options: Any) -> None:
    size = bert_tokenizer(folder)
    told(folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    sizes = {**TINY, "num_hidden_layers": 4, "local_attention": 8, "max_position_embeddings": 64}
    model(folder, kind, "ModernBertConfig", **{**sizes, **ids, "vocab_size": size, **options})


def modernbert_of_2024(folder: Path) -> None:
    modernbert(folder, "ModernBertForSequenceClassification", classifier_pooling="mean", **named("a", "b", "c"))
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
    told(folder, without=("layer_types", "rope_parameters"), **old)


def gte_modernbert(folder: Path) -> None:
    sentences(folder, lambda inner: modernbert(inner, "ModernBertModel"), "cls")


def japanese_bert(folder: Path) -> None:
    bert(folder, tokenizer={"alone": True, "tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"})
    told(folder, "tokenizer_config.json", without=("tokenizer_class",))
    told(folder, tokenizer_class="BertJapaneseTokenizer")


def kobert(folder: Path) -> None:
    bert(folder, tokenizer={"alone": True, "tokenizer_class": "KoBertTokenizer"})


def bertweet(folder: Path) -> None:
    roberta(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("the 10\ntide@@ 3\n")
    (folder / "bpe.codes").write_text("t h 10\n")
    (folder / "tokenizer_config.json").unlink()
    told(folder, tokenizer_class="BertweetTokenizer")


LAYOUTS = (
    Layout(bert_mlm, "bert-base-uncased"),
    Layout(bert_cased, "bert-base-cased, bert-base-multilingual-cased"),
    Layout(bert_of_2019, "SciBERT, BioBERT: no model_type, TensorFlow's names of norms", "hidden"),
    Layout(wrapped, "weights saved from torch.compile or data parallelism", "hidden"),
    Layout(within_a_model, "weights saved from within another module"),
    Layout(sharded, "weights in several files", "hidden"),
    Layout(half_precision, "float16"),
    Layout(bfloat16, "bfloat16", "hidden"),
    Layout(untied, "BERT with an output matrix of its own"),
    Layout(untied_roberta, "RoBERTa with an output matrix of its own"),
    Layout(tied_and_stored, "BERT with a copy of its output matrix"),
    Layout(activation_table, "quick_gelu and the rest of transformers' activations", "hidden"),
    Layout(activation_of_old, "gelu_fast, gelu_python, gelu_accurate", "hidden"),
    Layout(added_tokens, "BERT with added tokens", "hidden"),
    Layout(minilm, "all-MiniLM-L6-v2, all-mpnet's layout", "vector"),
    Layout(bge, "bge-base-en", "vector", options=(("prompt", "query"),)),
    Layout(e5, "e5-base, whose prompts are in its card", "vector", options=(("prefix", "query: "),)),
    Layout(e5_with_prompts, "multilingual-e5 with prompts", "vector"),
    Layout(paraphrase_multilingual, "paraphrase-multilingual-MiniLM-L12-v2", "vector"),
    Layout(bge_m3, "bge-m3 (dense vectors)", "vector"),
    Layout(labse, "LaBSE", "vector"),
    Layout(distiluse, "distiluse-base-multilingual-cased", "vector"),
    Layout(sgpt, "SGPT's weighted mean", "vector"),
    Layout(last_token, "pooling of the last token", "vector"),
    Layout(several_joined, "several ways of pooling, joined", "vector"),
    Layout(matryoshka, "truncate_dim, dot products", "vector"),
    Layout(sentences_of_2020, "sentence-transformers of 2020: 0_Transformer", "vector"),
    Layout(ko_sroberta, "ko-sroberta: klue/roberta, BERT's tokenizer, one segment", "vector"),
    Layout(kcbert, "KcBERT: vocab.txt alone"),
    Layout(koelectra, "KoELECTRA"),
    Layout(sst2_distilbert, "distilbert-base-uncased-finetuned-sst-2-english"),
    Layout(twitter_roberta, "twitter-roberta-base-sentiment"),
    Layout(finbert, "FinBERT"),
    Layout(toxic_bert, "toxic-bert: several labels"),
    Layout(xlmr_nli, "xlm-roberta-large-xnli"),
    Layout(ms_marco, "ms-marco-MiniLM-L6-v2", "score"),
    Layout(bge_reranker, "bge-reranker-base", "score"),
    Layout(stsb_cross_encoder, "stsb-roberta-base, the older key", "score"),
    Layout(ner, "dslim/bert-base-NER"),
    Layout(roberta_squad2, "roberta-base-squad2"),
    Layout(flan_t5, "flan-t5"),
    Layout(camembert, "camembert-base"),
    Layout(albert, "ALBERT with BERT's tokenizer: Korean, Chinese"),
    Layout(all_mpnet, "all-mpnet-base-v2", "vector"),
    Layout(kf_deberta, "kf-deberta: DeBERTa v2 with BERT's tokenizer"),
    Layout(deberta_nli, "DeBERTa v3 for entailment"),
    Layout(modernbert, "ModernBERT-base, mmBERT"),
    Layout(modernbert_of_2024, "ModernBERT's first config, labels from the mean"),
    Layout(gte_modernbert, "gte-modernbert-base", "vector"),
    Layout(japanese_bert, "tohoku BERT", "hidden"),
    Layout(kobert, "KoBERT", refused="KoBertTokenizer"),
    Layout(bertweet, "BERTweet", refused="BertweetTokenizer"),
)
