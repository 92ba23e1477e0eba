"""tilec's cost model held against what others measured: one file per question, assembled by `report` into docs/model.md."""
