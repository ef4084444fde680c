"""Whatever an engine answers: nothing raises, nothing becomes active by its word, and no GPU overrules nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglfleet.verify.asking import Question, heard
from sglfleet.verify.probe import RULE, disagreements, mended
from tests.sglfleet.verify.recorded import verdict
from validators.verdict import Decision, Outcome

FLAGS = ("enable-flashinfer-allreduce-fusion", "kv-cache-dtype", "tp-size", "disable-radix-cache")
values = st.one_of(st.booleans(), st.integers(-1, 4), st.sampled_from(["auto", "fp8", "", None]), st.just([1]))
words = st.sampled_from([
    "WARNING: ", "INFO: ", "--enable-flashinfer-allreduce-fusion ", "kv_cache_dtype=fp8 ", "tp size ", "is disabled",
    " is ignored", "because of ", "deprecated. Use --kv-cache-dtype instead", "\x1b[31m", "(", "error: unrecognized: ",
])  # fmt: skip
lines = st.lists(words, max_size=5).map("".join)
fields = st.dictionaries(st.sampled_from([f.replace("-", "_") for f in FLAGS]), values)
told = st.fixed_dictionaries(
    {"raised": st.one_of(st.just(""), lines), "rejected": st.booleans(), "resolved": fields, "said": st.lists(lines)},
    optional={"sets": st.dictionaries(st.sampled_from(FLAGS), fields)},
)
answers = st.fixed_dictionaries(
    {"gpu": st.sampled_from([{}, {"devices": [{"sm": "9.0"}]}])},
    optional={
        "arguments": told,
        "asked": told,
        "gaps": st.dictionaries(st.sampled_from(["gpu", "everything"]), lines),
        "generators": st.just({"9.0": {"jit.gen_x_module": "No supported CUDA architectures found"}}),
    },
)
judged = st.lists(
    st.builds(
        lambda flag, outcome, decision, value: verdict(flag, outcome=outcome, decision=decision, value=value),
        st.sampled_from(FLAGS), st.sampled_from(Outcome), st.sampled_from(Decision), values,
    ),
    unique_by=lambda v: v.flag,
)  # fmt: skip


@given(answers, judged)
def test_nothing_becomes_active_and_nothing_is_overruled_without_asking(answer, verdicts):
    found = disagreements(answer, verdicts)
    after = mended(verdicts, found)
    assert [v.flag for v in after] == [v.flag for v in verdicts]
    gpu = bool(answer["gpu"])
    for old, new in zip(verdicts, after, strict=True):
        if new is old:
            continue
        assert new.rule == RULE
        assert new.outcome is not Outcome.ACTIVE
        assert old.reason in new.reason
        parsed = bool((answer.get("arguments") or {}).get("rejected")) or old.outcome is Outcome.REJECTED
        assert gpu or parsed, "only the parser is the same without a GPU"


@given(answers, judged)
def test_hearing_never_raises(answer, verdicts):
    word = heard(Question("python", (), {}, tuple(verdicts), "0.5.16"), answer)
    assert all(isinstance(line, str) for line in (*word.said, *word.stops))
