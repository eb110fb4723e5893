"""The GPU's turn as PyTorch's worker gives and takes it; where PyTorch is there, while it compiles."""

import fcntl
import os
import tempfile
import unittest
from unittest import mock

from baselines.pytorch.turn import Turn, compile_aside

try:
    import torch
except ImportError:
    torch = None


class TurnTest(unittest.TestCase):
    def setUp(self):
        self.file = tempfile.NamedTemporaryFile()
        self.addCleanup(self.file.close)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.turn = Turn(self.file.fileno())

    def free(self):
        with open(self.file.name) as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def test_it_is_given_away_aside(self):
        with self.turn.aside():
            self.assertTrue(self.free())
            with self.turn.aside():
                self.assertTrue(self.free())
            self.assertTrue(self.free(), "the outer one goes on")
        self.assertFalse(self.free())

    def test_it_may_be_taken_early(self):
        with self.turn.aside():
            self.turn.take()
            self.assertFalse(self.free())
        self.assertFalse(self.free())

    def test_an_error_takes_it_back(self):
        with self.assertRaises(ValueError), self.turn.aside():
            raise ValueError
        self.assertFalse(self.free())

    def test_it_is_inherited_by_number_and_not_passed_on(self):
        number = self.file.fileno()
        os.set_inheritable(number, True)
        with mock.patch.dict(os.environ, {"NOISEFLOOR_TURN": str(number)}):
            self.assertEqual(Turn.inherited().descriptor, number)
            self.assertNotIn("NOISEFLOOR_TURN", os.environ)
            self.assertFalse(os.get_inheritable(number))
            nobodys = Turn.inherited()
        with nobodys.aside():
            self.assertFalse(self.free())

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_it_is_given_away_while_a_graph_is_compiled(self):
        import torch._inductor.compile_fx as inductor
        from torch._inductor.fx_passes import pad_mm
        from torch._inductor.runtime.benchmarking import benchmarker

        seen = []

        def compiler(model, inputs, config_patches=None):
            seen.append(self.free())
            pad_mm._should_pad()
            seen.append(self.free())
            return lambda *values: seen.append(self.free()) or model(*values)

        with mock.patch.object(inductor, "compile_fx", compiler), mock.patch.object(pad_mm, "_should_pad", lambda: True), \
                mock.patch.object(benchmarker, "benchmark_gpu", lambda: 1.0):
            compile_aside(self.turn)
            for mode in ("default", "max-autotune-no-cudagraphs"):
                torch._dynamo.reset()
                torch.compile(torch.sin, mode=mode, fullgraph=True)(torch.ones(3))
        self.assertEqual(seen[:3], [True, False, False], "compiling, searching, running")
        self.assertEqual(seen[3:], [False, False, False], "max-autotune searches throughout")
