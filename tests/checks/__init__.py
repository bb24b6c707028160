"""Tests of rmqstore.checks on sound and damaged real stores."""
