local os = require("os")
obj.spec.action = { type = "PromoteAll", id = "argocd-" .. os.time() }
return obj
