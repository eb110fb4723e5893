#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "networks/rewrite.h"

namespace noisefloor::networks {
namespace {

// The average of x of [n, hw, channels], if it is one.
const resample::Problem* average_of(const Node& node, const groupnorm::Problem& norm) {
  if (node.op->name != "resample") return nullptr;
  const auto& p = node.problem.as<resample::Problem>();
  const bool fits = p.op == resample::Operation::average_down2 && p.n == norm.n && p.h * p.w == norm.hw &&
                    p.channels == norm.channels;
  return fits ? &p : nullptr;
}

void halve(Rewrite& rewrite, const Node& norm, const Runs& runs) {
  auto p = norm.problem.as<groupnorm::Problem>();
  if (p.down() || p.stats || p.given() || p.coefficients || p.skip_channels > 0) return;
  const ValueId x = norm.value("x"), y = norm.value("y");
  const auto& of_y = rewrite.uses(y);
  if (of_y.size() != 1 || of_y[0].node == nullptr || of_y[0].value != y) return;
  const Node& average = *of_y[0].node;
  const resample::Problem* halved = average_of(average, p);
  if (halved == nullptr) return;
  const Node* skip = nullptr;
  for (const Rewrite::Use& use : rewrite.uses(x))  // what is read of it must stand behind the norm
    if (use.node != nullptr && use.value == x && use.node->op == average.op && use.node->text == average.text &&
        rewrite.runs_before(norm, *use.node))
      skip = use.node;
  p.down_w = halved->w;
  if (skip == nullptr || !runs(*norm.op, AnyProblem(p), norm.dtype)) return;
  const Node& both = rewrite.replace(norm, AnyProblem(p));
  rewrite.redirect(average.value("y"), both.value("y"));
  rewrite.redirect(skip->value("y"), both.value("x_down"));
}

}  // namespace

void halve_in_norms(Rewrite& rewrite, const Runs& runs) {
  rewrite.each("groupnorm", [&](const Node& norm) { halve(rewrite, norm, runs); });
}

}  // namespace noisefloor::networks
