"""ControlService on the wire: each stream frees what it holds, however its peer leaves."""
