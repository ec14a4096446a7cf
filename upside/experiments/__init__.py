"""The paper's protocol: seeds, rows, tables and figures by name, and who computes the runs."""
