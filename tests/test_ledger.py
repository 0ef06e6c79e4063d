"""The ledger of claims: what is missing is run once, and the page says what the results say."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import ledger  # noqa: E402
from claims import CLAIMS, VERDICTS, Claim  # noqa: E402

RESULTS = json.loads((ROOT / "benchmarks" / "ledger.json").read_text())


def test_the_page_is_what_the_results_say():
    assert (ROOT / "docs" / "claims.md").read_text() == ledger.render(CLAIMS, RESULTS)


def test_every_claim_has_a_result_or_says_why_not():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert set(RESULTS) <= {claim.name for claim in CLAIMS}
    for claim in CLAIMS:
        assert claim.verdict in VERDICTS
        assert claim.name in RESULTS or (claim.verdict in VERDICTS[3:] and claim.why)
    assert not ledger.missing(CLAIMS, RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_figure_that_was_measured_before_stands_on_its_page(name):
    result = RESULTS[name]
    if result["from"] == "ledger.py":
        return
    page = " ".join((ROOT / "docs" / result["from"]).read_text().split())
    for text in (*result["figure"].replace("CNN ", "").split(", "), result["interval"].split(" ")[-1]):
        number = next((word for word in text.split() if any(letter.isdigit() for letter in word)), "")
        assert number in page


def test_a_missing_result_is_run_and_kept(tmp_path, monkeypatch, capsys):
    claim = Claim(
        "sum", "Two and two are four.", "nobody", ("python -c 'print(\"sum\", 2 + 2)'",), "holds", "", r"sum (\d)"
    )
    monkeypatch.setattr(ledger, "CLAIMS", (claim,))
    monkeypatch.setattr(ledger, "LEDGER", tmp_path / "ledger.json")
    monkeypatch.setattr(ledger, "PAGE", tmp_path / "claims.md")
    monkeypatch.setattr(ledger, "save", lambda results: real(results, tmp_path / "ledger.json"))
    (tmp_path / "ledger.json").write_text("{}")
    ledger.main([])
    assert "Found: 4." in (tmp_path / "claims.md").read_text()
    assert "sum: python" in capsys.readouterr().out
    ledger.main([])
    assert "sum: python" not in capsys.readouterr().out


real = ledger.save


def test_a_figure_that_is_not_printed_is_told():
    claim = Claim("none", "", "", ("python -c pass",), "holds", "", r"sum (\d)")
    with pytest.raises(SystemExit, match="none: expected sum"):
        ledger.run(claim)
