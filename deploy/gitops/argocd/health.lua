-- The health of an AcceleratorRollout, for Argo CD: its condition Ready, told apart by what keeps it from being true.
-- Only Lua's base library is used, as Argo CD loads no other.
local wanted = { -- somebody wanted it so, and nothing is in flight: the reasons of condition Progressing
  Paused = true,
  StepPause = true,
  OutsideWindow = true,
  WorkloadPausedByUser = true,
}

local function told(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return told("Progressing", "It is being deleted: what is in flight gets its proof first")
end

local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return told("Progressing", "The operator has not looked at the newest spec")
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function holds(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end

local function words(kind)
  return conditions[kind].reason .. ": " .. conditions[kind].message
end

if holds("Stalled") then
  return told("Degraded", words("Stalled"))
end
if holds("Ready") then
  return told("Healthy", conditions.Ready.message)
end
if conditions.Progressing == nil then
  return told("Progressing", "The operator has not said yet where it stands")
end
if wanted[conditions.Progressing.reason] then
  return told("Suspended", words("Progressing"))
end
return told("Progressing", words("Progressing"))
