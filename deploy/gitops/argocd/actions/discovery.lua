-- What can be asked of an AcceleratorRollout, for Argo CD; disabled is what would have no effect now.
local conditions = {}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  if condition.status == "True" or condition.type == "Progressing" then
    conditions[condition.type] = condition
  end
end

local paused = obj.spec.paused == true
local stalled = conditions.Stalled ~= nil
local aborted = stalled and conditions.Stalled.reason == "Aborted"
local ready = conditions.Ready ~= nil
local waits_at_step = not ready and conditions.Progressing ~= nil and conditions.Progressing.reason == "StepPause"

local actions = {}
actions["pause"] = { disabled = paused }
actions["resume"] = { disabled = not paused }
actions["abort"] = { disabled = ready or aborted }
actions["retry"] = { disabled = not stalled }
actions["undo"] = { disabled = false }
actions["restart"] = { disabled = paused }
actions["promote"] = { disabled = not waits_at_step }
actions["promote-all"] = { disabled = not waits_at_step }
return actions
