"""A real process, started by its line, loads files and answers."""

from pathlib import Path

from tests.graphs.running import cities, instance


async def test_a_loaded_graph_answers_in_cypher(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        status = await running.load(cities(tmp_path / "store"))
        assert status["phase"] == "ready", status["error"]
        assert status["counts"] == {"nodes": {"City": 3}, "edges": {"ROAD": 3}}
        assert status["dangling_edges"] == {"ROAD": 1}

        rows = await running.rows(
            "MATCH (a:City {name: $name})-[r:ROAD]->(b) RETURN b.name, r.km", parameters={"name": "Bern"}
        )

        assert rows == [["Graz", 700.5]]
        assert (tmp_path / "instance" / "current").read_text().startswith("1\n")
