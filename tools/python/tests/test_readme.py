"""The README's code runs."""

import asyncio
import os
import re
from pathlib import Path

import foreshore
import pytest

README = Path(os.environ.get("FORESHORE_README", Path(__file__).parent.parent / "README.md"))


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    if not README.exists():
        pytest.skip("the README is not beside the tests")
    monkeypatch.chdir(tmp_path)
    first, indexes, second = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names = {}
    exec(first, names)
    assert capsys.readouterr().out == "ada 90\nbob 10\n"
    exec(indexes, {"foreshore": foreshore})
    assert capsys.readouterr().out == "(1, ('Ada', 'London'))\n[(1, ('Ada', 'London'))]\n"
    exec(second, names)
    with foreshore.open("bank") as db:
        asyncio.run(names["main"](db))
        with db.read() as tx:
            assert dict(tx.table("accounts", str, int).items()) == {"ada": 80, "bob": 20, "dan": 2, "eve": 1}
