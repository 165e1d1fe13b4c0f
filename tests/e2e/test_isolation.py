"""What one job leaves behind must not reach another."""

from harness import SCRIPTS, python, run


def test_a_job_never_computes_with_the_weights_of_one_before(daemon, sandbox):
    script = SCRIPTS / "isolation" / "first_product.py"
    for seed in range(3):
        result = run(sandbox, python(script, seed), sandbox.salus(daemon.socket)).ok()
        assert result.stdout == "right\n", f"job {seed}"
