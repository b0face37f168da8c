"""The planner's formulas against published figures, and its command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertie.apps.plan.forecast import Assumptions, cheapest, forecast
from bertie.apps.plan.law import Law, Point, fit_law, law
from bertie.apps.plan.page import better_loss
from bertie.apps.plan.presets import tried_utilizations
from bertie.costs import catalog
from bertie.costs.job import Job, JobPhase
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.count import decoder_parameters, forward_flops, parameters
from bertie.runs.config import PretrainConfig
from bertie.runs.planning import RunPlan, job_of
from bertie.settings import load_config

HEAD = {"bert-base": 768 * 768 + 3 * 768 + 30522, "bert-large": 1024 * 1024 + 3 * 1024 + 30522}


def bert(name: str, phases: list[tuple[int, int, int]]) -> Job:
    config = families.config(name)
    return Job(config, tuple(JobPhase(*phase, predicted=0.15) for phase in phases), head=HEAD[name])


RELEASE = [(900_000, 256, 128), (100_000, 256, 512)]  # Devlin et al. 2018, A.2


@pytest.mark.parametrize(
    ("name", "phases", "flops", "chips", "mfu"),
    [
        ("bert-base", RELEASE, 2.38e19, 16, 0.096),
        ("bert-base", [(1_000_000, 256, 512)], 7.71e19, 16, 0.31),
        ("bert-large", RELEASE, 8.15e19, 64, 0.082),
        ("bert-large", [(1_000_000, 256, 512)], 2.61e20, 64, 0.26),
    ],
)
def test_bert_as_it_was_trained(name: str, phases: Any, flops: float, chips: int, mfu: float) -> None:
    job = bert(name, phases)
    assert float(f"{job.flops:.3g}") == flops
    four_days = 4 * 86400
    assert catalog.utilization(job.flops, four_days, tflops=45, count=chips) == pytest.approx(mfu, rel=0.02)
    assert catalog.seconds(job.flops, 45, count=chips, used=mfu) == pytest.approx(four_days, rel=0.02)


def test_the_recipe_has_the_operations_of_the_release() -> None:
    job = job_of(load_config(PretrainConfig, "pretrain-bert-base"))
    assert job.tokens == 42_598_400_000
    assert float(f"{job.flops:.3g}") == 2.38e19
    assert job.parameters == 109_482_240 + HEAD["bert-base"] + 2 * 768 + 2


def electra_counter(h: int, layers: int, heads: int, s: int = 512, v: int = 30522, share: float = 0.15625) -> float:
    """google-research/electra, flops_computation.py, for a million BERT steps of 256 sequences, written by its
    formulas. It counts a dense product for the input embedding, and the backward pass as one forward pass.
    """
    dropout, softmax, norm, act = 4, 5, 5, 8
    i = 4 * h
    block = 3 * 2 * h * h + 3 * h + 2 * h * s + s * heads * (softmax + dropout + 1) + 2 * h * s
    block += 2 * h * h + h + dropout * h + h + norm * h
    block += 2 * h * i + act * i + i + 2 * h * i + h + dropout * h + h + norm * h
    embedding = 2 * h * v + 2 * h * (s + 2) + 2 * h + norm * h + dropout * h
    output = 2 * h * v + 2 * h * h + h + act * h + norm * h + softmax * v + 2 * v
    return 2 * 256 * 1e6 * s * (layers * block + embedding + share * output)


@pytest.mark.parametrize(("name", "published"), [("bert-base", 6.428e19), ("bert-large", 1.917e20)])
def test_electras_counter_is_another_measure(name: str, published: float) -> None:
    config = families.config(name)
    counted = electra_counter(config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    assert counted == pytest.approx(published, rel=5e-4)
    assert bert(name, [(1_000_000, 256, 512)]).flops > 1.15 * counted  # ours has two passes backward, no dense input


def test_energy_and_carbon_of_strubell_and_patterson() -> None:
    kwh = catalog.energy_kwh(12_041.51, 79.2, pue=1.58)
    assert kwh == pytest.approx(1506.8, abs=0.1)
    assert catalog.carbon_kg(kwh, 954) == pytest.approx(1437.5, abs=0.1)  # their pounds, with 0.954 pounds per kWh
    assert catalog.energy_kwh(16 * 221, 96, pue=1.1) == pytest.approx(373, abs=0.5)


@pytest.mark.parametrize(
    ("name", "measured"),
    [("bert-tiny", 260e6), ("bert-mini", 530e6), ("bert-base", 3279e6)],  # benchmarks/log/training-speed.md, bf16
)
def test_memory_of_measured_runs(name: str, measured: float) -> None:
    """32 rows of 128 tokens, of which 60% are text."""
    h = families.config(name).hidden_size
    job = Job(families.config(name), (JobPhase(1, 32, 77, 0.15),), head=h * h + 3 * h + 30522)
    assert job.memory(32, job.phases[0]) == pytest.approx(measured, rel=0.15)


def test_the_largest_batch_is_the_last_that_fits() -> None:
    job = bert("bert-base", RELEASE)
    most = job.largest_batch(24e9)
    assert max(job.memory(most, phase) for phase in job.phases) <= 24e9
    assert max(job.memory(most + 1, phase) for phase in job.phases) > 24e9
    assert job.largest_batch(1e9) == 0


def test_devices_scale_and_the_cheapest_has_a_price() -> None:
    known, plan = catalog.Catalog.read(), RunPlan(PretrainConfig(model="bert-base"), bert("bert-base", RELEASE))
    one, eight = (forecast(plan, "h100", Assumptions("world", count, 0.4), known) for count in (1, 8))
    assert one.seconds == pytest.approx(8 * eight.seconds)
    assert one.kwh == pytest.approx(eight.kwh)
    assert one.kg == pytest.approx(one.kwh * 0.4806)
    found = cheapest([forecast(plan, key, Assumptions("world", 1, 0.4), known) for key in known.devices])
    assert len(found) == 3
    assert [found[0].dollars] == sorted([each.dollars for each in found if each.dollars])[:1]
    assert forecast(plan, "t4", Assumptions("world", 1, 0.4, price=2.0), known).dollars is not None


def test_a_catalog_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("devices: {mine: {name: Mine, tflops: 10, watts: 100, memory_gb: 8}}\ngrids: {}\npriced: 2027-01\n")
    known = catalog.Catalog.read(own)
    assert known.device("mine").tflops == 10
    assert known.device("h100").tflops == 989
    assert known.priced == "2027-01"
    own.write_text("grids: {kor: {name: Korea, g_per_kwh: 420, year: 2025}}")
    assert catalog.Catalog.read(own).grid("KOR").g_per_kwh == catalog.Catalog.read(own).grid("kor").g_per_kwh == 420
    for bad in (
        "devices: {x: {name: X}}",
        "grids: {KOR: {name: K, g_per_kwh: 0.0, year: 2023}}",
        "other: 1",
        "prices: {l4: [1, 2]}",
        "- 1",
    ):
        own.write_text(bad)
        with pytest.raises((DataError, UsageError)):
            catalog.Catalog.read(own)


def test_the_command(bertie: Any) -> None:
    code, out, _ = bertie("plan", "-c", "pretrain-bert-base", "--machine", "h100,this", "--gpus", "8", "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found["devices"]) == {"h100", "this"}
    assert found["devices"]["h100"]["count"] == 8
    assert found["devices"]["h100"]["energy"].startswith("estimated")
    code, out, _ = bertie("plan", "model=bert-tiny", "train.steps=1000", "--machine", "l4", "--budget", "10h", "--json")
    rows = json.loads(out)["presets"]
    assert code == 0
    chosen = [row for row in rows if row["chosen"]]
    assert len(chosen) == 1
    larger = [row for row in rows if row["parameters"] > chosen[0]["parameters"]]
    assert all(row["tokens_per_parameter"] < 20 for row in larger)
    code, out, _ = bertie(
        "plan",
        "model=electra-small-discriminator",
        "objectives.mlm=null",
        "objectives.nsp=null",
        "objectives.rtd.size=0.25",
        "--machine",
        "l4",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["phases"][0]["extra"] > 0


def test_prices_of_ones_own_replace_all(tmp_path: Path, bertie: Any) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text("priced: 2026-11\nsource: a contract\nprices: {l4: [0.5, 0.7]}\n")
    known = catalog.Catalog.read(None, own)
    assert known.device("l4").price == (0.5, 0.7)
    assert known.device("h100").price is None
    assert catalog.Catalog.read().device("h100").price == (1.99, 5.0)
    code, out, _ = bertie("plan", "-c", "pretrain-bert-base", "--machine", "l4,h100", "--prices", str(own), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["prices"] == {"month": "2026-11", "source": "a contract"}
    assert found["cheapest"] == ["NVIDIA L4"]
    said = bertie("plan", "model=bert-tiny", "--machine", "l4", "--price", "1")[2]
    assert "Cheapest: NVIDIA L4 (--price)." in said
    said = bertie("plan", "model=bert-tiny", "--machine", "l4", "--prices", str(own))[2]
    assert "Cheapest: NVIDIA L4 (prices of 2026-11)." in said
    lab = tmp_path / "lab.yaml"
    lab.write_text("devices: {lab: {name: Lab, tflops: 10, watts: 100, memory_gb: 8, price: [0.1, 0.1]}}")
    said = bertie("plan", "model=bert-tiny", "--machine", "lab", "--catalog", str(lab))[2]
    assert "Cheapest: Lab (prices of 2026-05 and" in said, "the price is not of Bertie's list"
    own.write_text("priced: 2026-11-02\nprices: {l4: [0.5, 0.7]}\n")
    assert catalog.Catalog.read(None, own).priced == "2026-11-02"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prices: {l4: [0.5, 0.7]}", "the month"),
        ("priced: 2026-11", "the prices"),
        ("priced: soon\nprices: {l4: [0.5, 0.7]}", "priced"),
        ("priced: 2026-11\nprices: {l44: [0.5, 0.7]}", "l4"),
        ("priced: 2026-11\nprices: {l4: [0.0, 0.7]}", "greater than 0"),
        ("priced: 2026-11\nprices: {l4: 0.7}", "prices.l4"),
        ("priced: 2026-11\nprices: {l4: [0.7, 0.5]}", "lowest price comes first: [0.5, 0.7]"),
    ],
)
def test_prices_that_are_refused(text: str, said: str, tmp_path: Path, bertie: Any) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(text)
    code, _, err = bertie("plan", "-c", "pretrain-bert-base", "--prices", str(own))
    assert code in (2, 3)
    assert said in " ".join(err.split())


def test_a_grid_without_emissions_is_refused(tmp_path: Path, bertie: Any) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("grids: {CAF: {name: Central African Republic, g_per_kwh: 0.0, year: 2023}}\n")
    code, _, err = bertie("plan", "-c", "pretrain-bert-base", "--catalog", str(own), "--country", "CAF")
    assert code != 0
    assert "greater than 0" in " ".join(err.split())


def test_a_plan_of_fine_tuning(tmp_path: Path, bertie: Any) -> None:
    code, out, _ = bertie("plan", "-c", "finetune-squad", "model=bert-base", "--machine", "l4", "--json")
    found = json.loads(out)
    assert code == 0
    steps, tokens = round(3 * 87_599 / 32), 32 * 384
    assert found["phases"][0]["steps"] == steps
    assert found["tokens"] == steps * tokens
    flops = 3 * sum(forward_flops(families.config("bert-base"), length=384).values())
    assert found["flops"] == pytest.approx(flops * found["tokens"])
    assert found["phases"][0]["micro"] == 16
    file = tmp_path / "rows.tsv"
    file.write_text("text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(200)))
    code, out, _ = bertie(
        "plan", "model=bert-tiny", f"train_file={file}", "train.batch_size=20", "--machine", "l4", "--json"
    )
    assert json.loads(out)["phases"][0]["steps"] == 3 * 180 / 20  # a tenth is held out
    code, _, err = bertie("plan", "model=bert-tiny", "epochs=2", "--machine", "l4")
    assert code == 2
    assert "train_file" in err


def test_a_choice_is_a_sequence_for_each(bertie: Any) -> None:
    one = json.loads(bertie.good("plan", "task=sequence", "model=starter-en", "data=sst2", "--machine", "l4", "--json"))
    swag = json.loads(bertie.good("plan", "task=choice", "model=starter-en", "data=swag", "--machine", "l4", "--json"))
    assert one["tokens"] == pytest.approx(67_349 * 3 * 128, rel=0.01)
    assert swag["tokens"] == pytest.approx(4 * 73_546 * 3 * 128, rel=0.01)


def test_the_page_holds_the_bill_the_machines_and_the_sources(tmp_path: Path, bertie: Any) -> None:
    page = tmp_path / "plan.html"
    code, _, _ = bertie("plan", "-c", "pretrain-bert-base", "--country", "KOR", "-o", str(page))
    html = page.read_text()
    assert code == 0
    for heading in ("Bill by item", "Machines", "Sources"):
        assert f"<h2>{heading}</h2>" in html
    assert "South Korea: 430.6 g" in html
    assert "2.4e+19 FLOPs" in html
    assert "<script" not in html
    assert len(html) < 2_000_000
    code, _, err = bertie("plan", "-c", "pretrain-bert-base", "-o", str(page))
    assert code == 2
    assert "--overwrite" in err
    code, _, _ = bertie("plan", "model=bert-tiny", "--machine", "l4", "--budget", "1h", "-o", str(page), "--overwrite")
    assert code == 0
    assert "Expected loss" in page.read_text()


def test_parts_of_the_bill_sum_to_it() -> None:
    job = bert("bert-base", RELEASE)
    assert sum(p.tokens * sum(job.flops_parts(p).values()) for p in job.phases) == pytest.approx(job.flops)
    assert sum(job.peak.values()) == max(job.memory(phase.sequences, phase) for phase in job.phases)


def test_the_law_is_found_again() -> None:
    """Points of a known law give its constants; Bertie's own give a loss that falls with size and tokens."""
    known = Law(1.8, 40.0, 90.0, ())
    points = [Point("", n, d, known.loss(n, d)) for n in (10**5, 10**6, 10**7) for d in (10**6, 10**7, 10**8, 10**9)]
    found = fit_law([*points, Point("on the plateau", 10**5, 10**4, 7.0)])
    assert (found.e, found.a, found.b) == pytest.approx((1.8, 40.0, 90.0))
    assert found.loss(1e8, 1e10) == pytest.approx(known.loss(1e8, 1e10))
    assert found.error < 1e-6
    assert found.beyond(10**6, 10**10) == 10
    assert found.expected(10**6, 10**10) == round(known.loss(1e6, 1e10), 2)
    assert found.expected(10**6, 10**11) is None
    assert found.expected(10**6, 1000) is None
    ours = law()
    assert min(ours.a, ours.b) > 0
    assert ours.error < 0.3


def test_the_speed_of_presets_is_tried_here() -> None:
    settings = load_config(PretrainConfig, None, ["model=bert-tiny", "max_length=128", "train.steps=10"])
    plan = RunPlan.of(settings)
    shares = tried_utilizations({"bert-tiny": plan, "bert-base": plan}, 0.0)
    assert 0 < shares["bert-tiny"] <= 1
    assert shares["bert-base"] == shares["bert-tiny"], "no time was left to try it"


def test_numbers_of_a_large_budget_are_not_cut(bertie: Any) -> None:
    said = bertie.good("plan", "-c", "pretrain-small-cpu", "--budget", "3000h", "--machine", "h100")
    assert "5.4 T" in said
    assert "\u2026" not in said


def test_a_lower_loss_than_that_of_the_star_is_named() -> None:
    rows = [{"preset": "mini", "loss": 2.5, "chosen": False}, {"preset": "big", "loss": 3.0, "chosen": True}]
    assert better_loss(rows).startswith("mini has a lower expected loss, 2.50. big is chosen")
    assert better_loss(rows[1:]) == ""
    assert better_loss([{"preset": "mini", "loss": None, "chosen": True}]) == ""


def test_a_budget_for_long_texts(bertie: Any) -> None:
    longer = ("model=bert-tiny", "max_length=1024", "model_overrides.max_position_embeddings=1024")
    code, out, _ = bertie("plan", *longer, "--machine", "h100", "--budget", "1h")
    assert (code, "bert-base" in out) == (0, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--machine", "h1000"), "h100"),
        (("--prices", "nowhere.yaml"), "nowhere.yaml does not exist"),
        (("-c", "finetune-squad", "model=bert-base", "--budget", "1h"), "pre-train"),
        (("model=bert-tiny", "--budget", "1h", "--country", "KOR"), "without --country"),
        (("-c", "finetune-squad"), "model is missing"),
        (("-c", "finetune-squad", "model=bert-base", "batch=3"), "Unknown key"),
        (("--country", "XYZ"), "Unknown country"),
        (("--utilization", "0.7"), "--force"),
        (("--budget", "soon"), "24h"),
        (("--pue", "inf"), "--pue"),
        (("--price", "inf"), "--price"),
        (("model=bert-bas",), "bert-base"),
        (("model=bert-tiny", "max_length=1024"), "bert-tiny has 512 positions"),
        (("-c", "finetune-glue", "model=bert-base", "data=sst2", "max_length=600"), "Pass max_length=512"),
    ],
)
def test_bad_input(given: tuple[str, ...], said: str, bertie: Any) -> None:
    code, _, err = bertie("plan", *given)
    assert code == 2
    assert said in err


def test_a_plan_counts_the_decoder(tmp_path: Path, bertie: Any) -> None:
    """T5 for classes reads the text twice; for texts, it generates the target."""
    shape = families.config("t5-small")
    decoder = sum(decoder_parameters(shape).values())
    assert decoder > 25e6  # 60.5 million parameters in all
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(200)))

    def found(*more: str) -> tuple[int, float]:
        said = ("model=t5-small", f"train_file={tmp_path / 'rows.tsv'}", "--machine", "l4", "--json")
        code, out, err = bertie("plan", *said, *more)
        assert code == 0, err
        told = json.loads(out)
        return told["parameters"], told["flops"] / told["tokens"]

    encoder = sum(parameters(shape).values())
    alone = 3 * sum(forward_flops(shape, length=128).values())
    assert found() == (encoder + decoder, pytest.approx(3 * sum(forward_flops(shape, length=128, decoded=1).values())))
    size, flops = found("task=text2text", "task_options.max_target_length=32")
    assert size == encoder + decoder
    assert flops == pytest.approx(3 * sum(forward_flops(shape, length=128, predicted=0.25).values()))
    assert flops > 1.2 * alone


@pytest.mark.parametrize(
    ("name", "sequences", "length", "tokens", "milliseconds"),
    [  # of an H200, where rows were 60% full: benchmarks/log/training-speed.md
        ("bert-mini", 256, 128, 19_600, 4.3),
        ("bert-base", 256, 128, 19_470, 27.7),
        ("bert-base", 64, 512, 19_588, 32.7),
        ("bert-large", 128, 128, 9_836, 45.8),
    ],
)
def test_steps_on_a_gpu_are_as_long_as_measured(
    name: str, sequences: int, length: int, tokens: int, milliseconds: float
) -> None:
    lengths = np.arange(length // 5, length + 1)
    seen = float((lengths**2).sum() / lengths.sum())  # the mean length over tokens
    job = Job(families.config(name, pooler=False), (JobPhase(1, tokens / seen, seen, 0.15),))  # type: ignore[arg-type]
    device = catalog.Catalog.read().device("h200")
    assert device.memory_tb_s is not None
    assert 1000 * job.gpu_seconds(device.tflops, device.memory_tb_s) == pytest.approx(milliseconds, rel=0.2)
    used = device.expected_utilization(job)
    assert 1000 * device.seconds(job.flops, used=used) == pytest.approx(milliseconds, rel=0.2)


def test_small_batches_use_less_of_a_gpu_and_older_gpus_a_constant_share() -> None:
    config, known = families.config("bert-base"), catalog.Catalog.read()
    jobs = [Job(config, (JobPhase(1, sequences, 128, 0.15),)) for sequences in (8, 64, 512)]
    shares = [known.device("h100").expected_utilization(job) for job in jobs]
    assert 0 < shares[0] < shares[1] < shares[2] < 0.77
    assert known.device("t4").expected_utilization(jobs[0]) == catalog.UTILIZATION
    two = Job(config, (JobPhase(1, 64, 128, 0.15, micro=8),))
    assert known.device("h100").expected_utilization(two) < shares[1]
